"""The agent host: a small process that owns one harness, the only eye on its tree and the only hand on the trigger.

Standard library only, one thread, no asyncio: it runs beside every awake agent. Reading order: `loop`, `retire`,
`ending`, `signals`.
"""
