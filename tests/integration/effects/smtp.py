"""A mail server of a few lines whose replies a test scripts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

USUAL = {
    "greeting": "220 test",
    "EHLO": "250 test",
    "MAIL": "250 ok",
    "RCPT": "250 ok",
    "DATA": "354 go on",
    "end": "250 queued",
    "QUIT": "221 bye",
    "RSET": "250 ok",
}
HANG, CLOSE, DRIBBLE = "hang", "close", "dribble"


@dataclass(slots=True)
class Mailbox:
    """What arrived, and where the server listens; ``replies`` override the usual ones by command, or by a whole line in lower case: clients differ in theirs."""

    port: int = 0
    replies: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def reply(self, connection: socket.socket, command: str, line: str = "") -> bool:
        """Answer a command as scripted; False ends the connection."""
        text = self.replies.get(line.lower()) or self.replies.get(command) or USUAL.get(command, "500 what")
        if text == CLOSE:
            return False
        if text == HANG:
            self.stop.wait(20)
            return False
        if text == DRIBBLE:
            while not self.stop.wait(0.05):
                connection.sendall(b"2")
            return False
        connection.sendall(text.encode() + b"\r\n")
        return True

    def serve(self, connection: socket.socket) -> None:
        """Speak SMTP with one client until it or the script ends."""
        stream = connection.makefile("rb")
        if not self.reply(connection, "greeting"):
            return
        while line := stream.readline().decode("ascii", "replace").strip():
            command = line.split(" ")[0].upper()
            self.commands.append(command)
            if not self.reply(connection, command, line):
                return
            if command == "DATA" and self.replies.get("DATA", "354").startswith("354"):
                content = b""
                while (part := stream.readline()) not in (b".\r\n", b""):
                    content += part
                self.mails.append(content)
                if not self.reply(connection, "end"):
                    return


@contextmanager
def mail_server(**replies: str) -> Iterator[Mailbox]:
    """Run a server for the length of the block."""
    mailbox = Mailbox(replies=replies)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mailbox.port = listener.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        mailbox.serve(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield mailbox
        finally:
            mailbox.stop.set()
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=10)
