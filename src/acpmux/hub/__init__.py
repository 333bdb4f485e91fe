"""The engine: one actor per session, one harness per awake session, one heap of deadlines.

It sees the world through `ports`.
"""
