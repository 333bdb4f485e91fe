"""The launcher stage: becomes a child subreaper, then turns into the host.

The setting survives exec (prctl(2), PR_SET_CHILD_SUBREAPER), so ctypes, which costs two megabytes, stays out of the
host itself.
"""

import os
import sys

_PR_SET_CHILD_SUBREAPER = 36
_STAGE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from acpmux.host.loop import main; main()"


def main() -> None:
    """Ends in exec.

    Without a subreaper the host still works; what leaves the tree is then found by its environment only.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _STAGE, source])


if __name__ == "__main__":
    main()
