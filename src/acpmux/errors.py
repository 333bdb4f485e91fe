"""Every error acpmux raises on purpose, by whose fault it is.

    AcpmuxError
    ├── ClientFault            the request was wrong
    │   ├── UsageFault           "usage"            malformed or contradictory request
    │   ├── NoSuchSession        "no_such_session"
    │   ├── NameTaken            "name_taken"
    │   ├── UnknownAgent         "unknown_agent"
    │   ├── ConfigFault          "config"           a config file or --mcp-config that does not hold
    │   ├── StateFault           "state"            not possible in the session's state
    │   ├── NoSuchAsk            "no_such_ask"      answered already, or never asked
    │   └── AccessDenied         "access_denied"
    ├── HarnessFault           the agent's program
    │   ├── LaunchFailed         "launch_failed"    missing program, bad folder, exit at start
    │   ├── StartTimeout         "start_timeout"
    │   ├── SettingRefused       "setting_refused"  mode or option not confirmed after a resume
    │   └── HarnessError         "harness_error"    an error answer of the harness
    ├── HostFault              our host process
    │   ├── HostLost             "host_lost"
    │   └── HostRefused          "host_refused"
    └── OwnFault               us, or the machine
        ├── StoreError           "store"
        ├── BudgetSpent          "timeout"
        ├── DaemonUnreachable    "daemon_unreachable"
        └── Internal             "internal"

The tree is mapped once to JSON-RPC codes (`rpc_code`) and once to exit codes (`exit_code`).
"""


class AcpmuxError(Exception):
    """Base of all. `message` says what and where and, where a person can act, what to do next."""

    code = "internal"
    rpc_code = -32603
    exit_code = 1
    retryable = False

    def __init__(self, message: str, *, detail: str | None = None, session_id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.session_id = session_id
        self.blockers: list[dict[str, object]] = []  # who is in the way: {pid, command, why}


class ClientFault(AcpmuxError):
    code = "usage"
    rpc_code = -32602
    exit_code = 2


class UsageFault(ClientFault):
    pass


class NoSuchSession(ClientFault):
    code = "no_such_session"
    rpc_code = -32002
    exit_code = 4


class NameTaken(ClientFault):
    code = "name_taken"
    exit_code = 1


class UnknownAgent(ClientFault):
    code = "unknown_agent"
    exit_code = 1


class ConfigFault(ClientFault):
    code = "config"
    exit_code = 2


class StateFault(ClientFault):
    code = "state"
    rpc_code = -32600
    exit_code = 1


class NoSuchAsk(ClientFault):
    code = "no_such_ask"
    exit_code = 1


class AccessDenied(ClientFault):
    code = "access_denied"
    rpc_code = -32000
    exit_code = 1


class HarnessFault(AcpmuxError):
    code = "harness_error"
    retryable = True


class LaunchFailed(HarnessFault):
    code = "launch_failed"


class StartTimeout(HarnessFault):
    code = "start_timeout"


class SettingRefused(HarnessFault):
    code = "setting_refused"


class HarnessError(HarnessFault):
    code = "harness_error"


class HostFault(AcpmuxError):
    code = "host_lost"
    retryable = True


class HostLost(HostFault):
    pass


class HostRefused(HostFault):
    code = "host_refused"


class OwnFault(AcpmuxError):
    pass


class StoreError(OwnFault):
    code = "store"
    retryable = True


class Unstorable(OwnFault):
    """What was to be stored is no value that can be: another try would meet the same."""

    code = "internal"


class BudgetSpent(OwnFault):
    code = "timeout"
    exit_code = 3
    retryable = True


class DaemonUnreachable(OwnFault):
    code = "daemon_unreachable"
    retryable = True


class Internal(OwnFault):
    pass


def by_code() -> dict[str, type[AcpmuxError]]:
    """Every error class by its stable code, the most specific where a code is shared."""
    found: dict[str, type[AcpmuxError]] = {}
    pending: list[type[AcpmuxError]] = [AcpmuxError]
    while pending:
        kind = pending.pop()
        found[kind.code] = kind
        pending.extend(kind.__subclasses__())
    return found
