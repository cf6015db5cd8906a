"""A mail server that has a bad moment: it takes two calls and says nothing, then works."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def moody_mail_server(silent_calls: int) -> Iterator[int]:
    """Until the block ends, the port of a server that answers after so many silent calls."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=_answer, args=(listener, silent_calls), daemon=True)
        answering.start()
        yield listener.getsockname()[1]


def _answer(listener: socket.socket, silent_calls: int) -> None:
    unanswered: list[socket.socket] = []
    try:
        while True:
            call, _ = listener.accept()
            if len(unanswered) < silent_calls:
                unanswered.append(call)
            else:
                with call:
                    call.sendall(b"220 mail.example ready\r\n")
    except OSError:
        # The block has ended, and closed the listener.
        for call in unanswered:
            call.close()
