"""What an earlier daemon decided for a harness that runs on, from the log."""

import json

from acpmux.model.ids import SessionId
from acpmux.model.record import Kind
from acpmux.model.session import Option
from acpmux.ports import EventLog
from acpmux.rules.asks import outcome
from acpmux.rules.messages import AnswerHarness
from acpmux.untyped import parse_json

LAST_RECORDS = 1000  # of these kinds; an answer that was not sent is among the very last


async def given_answers(log: EventLog, session_id: SessionId) -> list[AnswerHarness]:
    """Every answer to a question of this incarnation, in order.

    An earlier daemon may have died before it sent the last. A host hands each over once, by its key.
    """
    kinds = (Kind.WOKE, Kind.ASK_OPENED, Kind.ASK_RESOLVED, Kind.REQUEST)
    asked: dict[str, tuple[bytes, list[Option]]] = {}
    found: list[AnswerHarness] = []
    for row in await log.read_kinds(session_id, kinds, LAST_RECORDS):
        body = parse_json(row.record.body)
        match row.record.kind:
            case Kind.WOKE:
                asked, found = {}, []
            case Kind.ASK_OPENED:
                options = [Option(o["optionId"], o["name"], o["kind"]) for o in body["options"]]
                asked[body["askId"]] = (json.dumps(body["requestId"], separators=(",", ":")).encode(), options)
            case Kind.ASK_RESOLVED if body["askId"] in asked:
                request_id, options = asked[body["askId"]]
                chosen = next((option for option in options if option.option_id == body["optionId"]), None)
                found.append(AnswerHarness(f"answer:{body['askId']}", request_id, result=outcome(chosen)))
            case Kind.REQUEST if "key" in body:
                request_id = json.dumps(body["requestId"], separators=(",", ":")).encode()
                text = f"no client here serves {body['method']}"
                found.append(AnswerHarness(body["key"], request_id, None, -32601, text))
            case _:
                pass
    return found
