"""Identifiers, each a type of its own, so that one can't be passed for another."""

from typing import NewType

SessionId = NewType("SessionId", str)  #: acpmux's own, stable: "s" and 12 hex digits
AgentSessionId = NewType("AgentSessionId", str)  #: the harness's id for the same session
PromptId = NewType("PromptId", str)  #: chosen by a client or made by us; runs once
AskId = NewType("AskId", str)  #: a question to a person: "a" and the seq of the record that opened it
HostId = NewType("HostId", str)  #: one incarnation of a host: "h" and 12 hex digits
ClientId = NewType("ClientId", str)  #: one connection of one client
Seq = NewType("Seq", int)  #: a record's number in its session's log, from 1 without gaps
HostSeq = NewType("HostSeq", int)  #: a line's number in its incarnation, from 1 without gaps

NO_LINE = HostSeq(0)  #: before the first
