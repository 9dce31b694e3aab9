#!/usr/bin/env python3
"""A stand-in for remove.bg, Imgur, imgbb and Azure Blob on loopback, for tests. It follows the services' documented
contracts strictly, records what it gets, and misbehaves where a test asks it to. README.md tells how.

Usage: server.py [--tls NAME CERTIFICATE KEY]…
Prints one line of JSON with its ports: {"http": 40001, NAME: 40002, …}.
"""

import json
import sys
import threading

import azure
import hosts
import imgbb
import imgur
import removebg
import web
from web import Answer


class Application:
    def __init__(self):
        self.log = web.Log()
        self.scripts = web.Scripts()
        self.lock = threading.Lock()
        self.connections = 0
        self.keeps = True
        classes = (
            removebg.RemoveBG, imgur.Imgur, imgbb.ImgBB, azure.Azure, hosts.Sink, hosts.Pictures, hosts.Segment,
            hosts.Echo,
        )  # fmt: skip
        self.settings = {kind.name: {} for kind in classes}
        self.services = {kind.name: kind(self) for kind in classes}
        self.pictures = self.services["pictures"]
        # Where a proxy's CONNECT to port 443 leads.
        self.tls_port = None

    def new_connection(self):
        with self.lock:
            self.connections += 1
            return self.connections

    def service_of(self, request):
        first = request.path.split("/")[1]
        names = {"v1.0": "removebg", "3": "imgur", "oauth2": "imgur", "i": "imgur", "1": "imgbb", "ibb": "imgbb",
                 "ibb-viewer": "imgbb", "sink": "sink", "pictures": "pictures", "segment": "segment", "echo": "echo"}  # fmt: skip
        service = self.services[names.get(first, "azure")]
        return Links(service) if first in ("i", "ibb", "ibb-viewer") else service

    def exchange(self, request):
        return web.Exchange(self, request)

    # --- control ---

    def control(self, request):
        try:
            return self.controlled(request)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            return Answer.json(400, {"error": f"{type(error).__name__}: {error}"})

    def controlled(self, request):
        word = request.path[len("/control/") :]
        if word.startswith("pictures/") and request.method == "PUT":
            kind = request.header("content-type") or "application/octet-stream"
            self.pictures.put("/" + word, request.body, kind)
            return Answer.json(200, {})
        if word.startswith("uploads/"):
            return self.uploaded(word[len("uploads/") :])
        if request.method == "GET":
            given = {part.name: part.text for part in request.query_fields}
            return self.told(word, given)
        if request.method != "POST":
            return Answer.json(405, {"error": "GET, POST or PUT"})
        value = json.loads(request.body) if request.body else {}
        if word == "reset":
            self.reset(value.get("key"))
        elif word == "keys":
            self.services[value.pop("service")].add_key(value)
        elif word == "script":
            for entry in value if isinstance(value, list) else [value]:
                if entry.get("service") not in self.services:
                    raise ValueError(f"no service {entry.get('service')}")
                self.scripts.add(entry)
        elif word == "settings":
            for name, settings in value.items():
                if name == "keep":
                    self.keeps = bool(settings)
                elif name == "log":
                    self.log.is_on = bool(settings)
                else:
                    self.settings[name].update(settings)
        elif word == "gallery":
            self.services["imgur"].gallery = value.get("items", [])
            self.services["imgur"].albums = value.get("albums", {})
        elif word == "sas":
            service = self.services["azure"]
            query = service.awkward(value) if value.pop("awkward", False) else service.minted(value)
            return Answer.json(200, {"sas": query})
        elif word == "expire":
            self.services["imgur"].tokens[value["token"]]["expired"] = True
        elif word == "lease":
            container = self.services["azure"].accounts[value["account"]]["containers"][value["container"]]
            container[value["blob"]]["lease"] = value["lease"]
        else:
            return Answer.json(404, {"error": f"no control {word}"})
        return Answer.json(200, {})

    def told(self, word, given):
        if word == "log":
            entries = self.log.select(given.get("service"), given.get("key"), given.get("path"))
            lost = self.log.lost
            if given.get("off") == "1":
                self.log.is_on = False
                self.log.clear()
            return Answer.json(200, {"entries": entries, "lost": lost})
        if word == "keys":
            return Answer.json(200, self.services[given["service"]].state(given["key"]))
        if word == "script":
            return Answer.json(200, {"left": self.scripts.select(given.get("key"))})
        if word == "counts":
            with self.log.lock:
                counts = json.loads(json.dumps(self.log.counts))
            return Answer.json(200, {"connections": self.connections, "requests": self.log.number, "answers": counts})
        return Answer.json(404, {"error": f"no control {word}"})

    def reset(self, key=None):
        """Everything, or what belongs to one key."""
        if key is not None:
            for service in self.services.values():
                service.forget(key)
            self.scripts.forget(key)
            self.log.forget(key)
            return
        for service in self.services.values():
            service.clear()
        for settings in self.settings.values():
            settings.clear()
        self.scripts.forget()
        with self.log.lock:
            self.log.clear()
            self.log.is_on = True
        self.keeps = True

    def uploaded(self, digest):
        """What came with this SHA-256, whatever service took it."""
        kept = [*self.services["imgur"].images.values(), *self.services["imgbb"].images.values(),
                *self.services["sink"].stored.values()]  # fmt: skip
        for account in self.services["azure"].accounts.values():
            for blobs in account["containers"].values():
                kept += blobs.values()
        for entry in kept:
            if entry["sha256"] == digest and entry["data"]:
                return Answer(200, entry["data"], "application/octet-stream")
        return Answer.json(404, {"error": "no such upload"})


class Links:
    """The direct links of a service's answers, which need no key."""

    def __init__(self, service):
        self.service = service
        self.name = service.name
        self.reset_header = service.reset_header

    def key_of(self, request):
        return None

    def before_body(self, exchange):
        return None

    def answer(self, exchange):
        return self.service.file(exchange.request)

    def malformed(self, exchange, message):
        return Answer(400, message.encode(), "text/plain")

    def shape(self, name, exchange, rule):
        return self.service.shape(name, exchange, rule)


def start(tls=()):
    """The application and its servers by name, each on a thread of its own."""
    application = Application()
    servers = {"http": web.Server(application)}
    for name, certificate, key in tls:
        servers[name] = web.Server(application, web.tls_context(certificate, key))
        application.tls_port = application.tls_port or servers[name].server_address[1]
    for server in servers.values():
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 3600}, daemon=True).start()
    return application, servers


def main(arguments):
    tls = []
    while arguments:
        if arguments[0] != "--tls" or len(arguments) < 4:
            sys.exit(__doc__)
        tls.append(arguments[1:4])
        arguments = arguments[4:]
    _, servers = start(tls)
    print(json.dumps({name: server.server_address[1] for name, server in servers.items()}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
