"""The built-in demo agent: a real ACP program without a model, a key or a network. `python -m acpmux.agents.demo`.

It behaves as measured agents do where that matters to a multiplexer: it starts the MCP servers it is given, runs
commands in OS sessions of their own, keeps its conversation on disk, can't load a session that was never prompted, and
comes back from a load or resume in its default mode, which is wider than `plan`. Standard library only, so that it
starts at once.

Reading order: `peer.py` (lines), `agent.py` (ACP methods), `words.py` (what a prompt asks for), `deeds.py` (doing it).
"""
