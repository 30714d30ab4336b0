#!/usr/bin/env python3
"""get, watch, exec, attach and port-forward with Python's kubernetes client, for the trials: the words, the outputs and the
exit codes are kubectl's. With PROXYS_CREDENTIAL=said the program says user and password of its proxy itself.

    get configmaps [--watch] -o name
    exec [-i | -t] POD -- COMMAND...
    attach -i POD
    port-forward pod/POD :PORT...
"""

import json
import os
import socket
import sys
import threading
from urllib.parse import unquote, urlsplit

import urllib3
from kubernetes import client, config, watch
from kubernetes.stream import portforward, stream
from kubernetes.stream.ws_client import RESIZE_CHANNEL, STDIN_CHANNEL, WSClient

NAMESPACE = "default"
CHUNK_BYTES = 64 * 1024
# The limit for one read of the connection. The writing half has a thread of its own.
LOOK_S = 0.5
# The sizes that a terminal has one after the other; the second one is sent once the first one has been printed there.
SIZES = ((33, 77), (44, 88))


def main(words: list[str]) -> int:
    config.load_kube_config()
    if os.environ.get("PROXYS_CREDENTIAL") == "said" and client.Configuration.get_default_copy().proxy:
        say_proxys_credential()
    pods = client.CoreV1Api()
    match words:
        case ["get", "configmaps", "-o", "name"]:
            return named(pods.list_namespaced_config_map(NAMESPACE).items)
        case ["get", "configmaps", "--watch", "-o", "name"]:
            return named(event["object"] for event in watch.Watch().stream(pods.list_namespaced_config_map, NAMESPACE))
        case ["exec", "-i", pod, "--", *command]:
            return joined(opened(pods.connect_get_namespaced_pod_exec, pod, command=command, stdin=True))
        case ["exec", "-t", pod, "--", *command]:
            return joined(opened(pods.connect_get_namespaced_pod_exec, pod, command=command, stderr=False, tty=True), True)
        case ["exec", pod, "--", *command]:
            return joined(opened(pods.connect_get_namespaced_pod_exec, pod, command=command))
        case ["attach", "-i", pod]:
            return joined(opened(pods.connect_get_namespaced_pod_attach, pod, stdin=True))
        case ["port-forward", pod, *ports]:
            return forwarded(pod.removeprefix("pod/"), [int(port.lstrip(":")) for port in ports])
    sys.exit(__doc__)


def say_proxys_credential() -> None:
    """The client hands proxy-url on to urllib3, which takes no user and password out of the URL of an HTTP proxy."""
    configuration = client.Configuration.get_default_copy()
    proxy = urlsplit(configuration.proxy)
    credential = f"{unquote(proxy.username)}:{unquote(proxy.password)}"
    configuration.proxy_headers = urllib3.make_headers(proxy_basic_auth=credential)
    client.Configuration.set_default(configuration)


def named(objects) -> int:
    for one in objects:
        print(f"configmap/{one.metadata.name}", flush=True)
    return 0


def opened(ask, pod: str, **options) -> tuple[WSClient, bool]:
    chosen = {"stdin": False, "stdout": True, "stderr": True, "tty": False, **options}
    return stream(ask, pod, NAMESPACE, binary=True, _preload_content=False, **chosen), chosen["stdin"]


def joined(process: tuple[WSClient, bool], has_terminal: bool = False) -> int:
    """Joins a process' streams to ours until it has ended, and ends as it did."""
    connection, has_stdin = process
    if has_stdin:
        threading.Thread(target=typed, args=(connection,), daemon=True).start()
    if has_terminal:
        resized(connection)
    while connection.is_open():
        connection.update(timeout=LOOK_S)
        said(connection)
    said(connection)
    return connection.returncode


def said(connection: WSClient) -> None:
    for read, ours in ((connection.read_stdout, sys.stdout.buffer), (connection.read_stderr, sys.stderr.buffer)):
        ours.write(read(timeout=0))
        ours.flush()


def typed(connection: WSClient) -> None:
    while chunk := os.read(0, CHUNK_BYTES):
        connection.write_stdin(chunk)
    connection.close_channel(STDIN_CHANNEL)


def resized(connection: WSClient) -> None:
    first, second = SIZES
    size(connection, first)
    seen = b""
    while b"%d %d" % first not in seen and connection.is_open():
        seen += connection.read_stdout(timeout=LOOK_S)
    sys.stdout.buffer.write(seen)
    size(connection, second)


def size(connection: WSClient, of: tuple[int, int]) -> None:
    connection.write_channel(RESIZE_CHANNEL, json.dumps({"Height": of[0], "Width": of[1]}).encode())


def forwarded(pod: str, ports: list[int]) -> int:
    """Listens for each port, says where, and forwards until it is killed; each connection has a stream of its own."""
    threads = []
    for port in ports:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        print(f"Forwarding from 127.0.0.1:{listener.getsockname()[1]} -> {port}", flush=True)
        threads.append(threading.Thread(target=accepted, args=(listener, pod, port)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return 0


def accepted(listener: socket.socket, pod: str, port: int) -> None:
    while True:
        ours, _ = listener.accept()
        threading.Thread(target=carried, args=(ours, pod, port), daemon=True).start()


def carried(ours: socket.socket, pod: str, port: int) -> None:
    # A client of its own, because opening a stream replaces the client's request function for that time.
    pods = client.CoreV1Api(client.ApiClient())
    ask = portforward(pods.connect_get_namespaced_pod_portforward, pod, NAMESPACE, ports=str(port))
    theirs = ask.socket(port)
    threading.Thread(target=copied, args=(theirs, ours), daemon=True).start()
    copied(ours, theirs)


def copied(source, target) -> None:
    while chunk := source.recv(CHUNK_BYTES):
        target.sendall(chunk)
    target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
