import pytest

from acpmux.wire import hostframe


def test_frames_come_back_whole_in_any_split() -> None:
    data = hostframe.encode("out", b"line\n\x00", n=5) + hostframe.encode("exited", kind="a header of that name")
    for size in (1, 2, 3, 7, len(data)):
        reader = hostframe.FrameReader()
        frames = [f for at in range(0, len(data), size) for f in reader.feed(data[at : at + size])]
        assert frames[0] == hostframe.Frame("out", {"n": 5}, b"line\n\x00")
        assert frames[1].header == {"kind": "a header of that name"}


@pytest.mark.parametrize(
    "data", [b"\xff" * 8, b"\0\0\0\2\0\0\0\0[]", b"\0\0\0\2\0\0\0\0{}", b"\0\0\0\7\0\0\0\0" + b'{"t":1}']
)
def test_what_is_no_frame_ends_the_link(data: bytes) -> None:
    with pytest.raises(hostframe.FrameError):
        list(hostframe.FrameReader().feed(data))


def test_frame_over_the_limit_is_not_sent() -> None:
    with pytest.raises(hostframe.FrameTooBig):
        hostframe.encode("census", processes=["x" * hostframe.MAX_HEADER_BYTES])
    with pytest.raises(hostframe.FrameTooBig):
        hostframe.encode("in", bytes(hostframe.MAX_BODY_BYTES + 1))
