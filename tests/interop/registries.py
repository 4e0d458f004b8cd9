"""A schema registry that runs, Apicurio's, on the loopback: Confluent's client registers, kstore reads by its URL.
Apicurio's own serializer writes ids of eight bytes, global ones and content ids.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import kstore
from tests.interop.broker import free_ports
from tests.interop.programs import BUILD, SOURCES, Unavailable, fetch_jars, run
from tests.making.extracting import extract

Problems = Iterator[str]
START_SECONDS, STOP_SECONDS = 300, 30
JVMS = "/usr/lib/jvm"
CONFLUENT_API = "/apis/ccompat/v7"
OWN_API = "/apis/registry/v2"
# The last version whose serializer writes ids of eight bytes unless it is told otherwise.
SERIALIZER_VERSION = "2.6.13.Final"
CITY = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
# The serializer registers the schema by its own name, so that neither topic has a subject of its name.
APICURIO_TOPICS = ("apicurio-one", "apicurio-two")


class Apicurio(NamedTuple):
    """A version of Apicurio Registry. java: the version that it needs; jar: what is run."""

    version: str
    java: int
    jar: str

    @property
    def directory(self) -> Path:
        return BUILD / f"apicurio-{self.version}"


REGISTRIES = (
    Apicurio("2.6.13.Final", 17, "apicurio-registry-app-2.6.13.Final-runner.jar"),
    Apicurio("3.3.3", 21, "quarkus-run.jar"),
)


def java_of(least: int) -> str | None:
    """Return a java of a version or a newer one, None if there is none."""
    homes = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    found = [str(home / "bin" / "java") for home in (*homes, *sorted(Path(JVMS).glob("*")))]
    for java in filter(None, (shutil.which("java"), *found)):
        if not Path(java).exists():
            continue
        said = subprocess.run((java, "-version"), capture_output=True, text=True, check=False).stderr
        version = re.search(r'version "(\d+)', said)
        if version is not None and int(version[1]) >= least:
            return java
    return None


def fetch(registry: Apicurio) -> None:
    """Put a registry under its directory, once."""
    if registry.directory.exists():
        return
    part = registry.directory.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    artifact = f"io.apicurio:apicurio-registry-app:{registry.version}:tar.gz:all"
    run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={part}", cwd=part)
    for archive in part.glob("*.tar.gz"):
        extract(archive, part)
        archive.unlink()
    part.rename(registry.directory)


@contextmanager
def running(registry: Apicurio, java: str, log: Path) -> Iterator[str]:
    """Run a registry that keeps its schemas in memory; yield the URL of its host."""
    (port,) = free_ports(1)
    settings = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}")
    command = (java, "-Xmx512m", *settings, "-jar", registry.jar)
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out, subprocess.Popen(command, cwd=registry.directory, stdout=out, stderr=out) as process:
        try:
            await_answer(url + CONFLUENT_API + "/subjects", process)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=30):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise Unavailable(f"the registry did not answer at {url} in {START_SECONDS} s")


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    """Yield what is tried, of each registry for which there is a Java."""
    try:
        from tests.interop.confluent import Topics
    except ModuleNotFoundError as error:
        raise Unavailable(f"Confluent's client needs {error.name}: pip install -r requirements-dev.txt") from error
    for registry in REGISTRIES:
        name, java = f"Apicurio {registry.version}", java_of(registry.java)
        if java is None:
            yield f"{name}: is left out, as it needs Java {registry.java}", iter(())
            continue
        fetch(registry)
        root = work / registry.version
        with running(registry, java, work / f"{registry.version}.log") as host:
            topics = Topics(host + CONFLUENT_API)
            topics.write(root)
            yield f"{name}: kstore lists what Confluent's client registered", listed(topics)
            for topic, rows in topics.rows.items():
                yield f"{name}: kstore reads {topic} by the URL", read(root, topic, topics, rows)
            for kind in ("globalId", "contentId"):
                claim = f"{name}: kstore reads what Apicurio's serializer wrote with a {kind} of eight bytes"
                yield claim, of_apicurio(work / f"{registry.version}-{kind}", host, kind)


def listed(topics: Any) -> Problems:
    """Compare what kstore lists with what was registered."""
    found = {
        (each.subject, each.version): (each.schema_id, each.schema_type, each.is_deleted, len(each.references))
        for each in kstore.read_schemas(topics.url).schemas
    }
    for place in sorted(found.keys() | topics.registered.keys()):
        ours, theirs = found.get(place), topics.registered.get(place)
        if ours != theirs:
            yield f"{place}: kstore has {ours}, registered was {theirs}"


def read(root: Path, topic: str, topics: Any, rows: list[Any]) -> Problems:
    """Compare the values of a topic with what Confluent's serializer was given."""
    scan = kstore.scan(root, topics=topic, value=topic.partition("-")[0], schemas=topics.url, columns=["value"])
    found = scan.to_table()["value"].to_pylist()
    if found != rows:
        yield f"kstore reads {found}, written was {rows}"


def serialized(host: str, kind: str) -> list[bytes]:
    """Return a value for each topic, as Apicurio's serializer writes it with ids of a kind."""
    directory, sources = BUILD / "apicurio-serializer", SOURCES / "apicurio"
    fetch_jars(sources / "pom.xml", SERIALIZER_VERSION, directory)
    run("javac", "-nowarn", "-cp", "lib/*", "-d", "classes", str(sources / "ApicurioValues.java"), cwd=directory)
    command = ("java", "-cp", "classes:lib/*", "ApicurioValues", host + OWN_API, kind, json.dumps(CITY))
    done = subprocess.run((*command, *APICURIO_TOPICS), cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"Apicurio's serializer failed: {done.stderr.strip().splitlines()[:1]}")
    return [bytes.fromhex(line) for line in done.stdout.split()]


def of_global_ids(host: str, values: list[bytes]) -> kstore.SchemaRegistry:
    """Return the schemas of the global ids that values have, as the registry's own API gives them."""
    schemas = []
    for value in values:
        schema_id = int.from_bytes(value[1:9], "big")
        with urllib.request.urlopen(f"{host}{OWN_API}/ids/globalIds/{schema_id}") as answer:
            schemas.append(kstore.RegisteredSchema(schema_id, "City", 1, "AVRO", answer.read().decode()))
    return kstore.SchemaRegistry(schemas)


def of_apicurio(root: Path, host: str, kind: str) -> Problems:
    """Compare values with ids of eight bytes with what Apicurio's serializer was given."""
    values = serialized(host, kind)
    with kstore.open_store(root, "a") as store, kstore.Producer(store) as producer:
        for topic, value in zip(APICURIO_TOPICS, values, strict=True):
            store.create_topic(topic, partitions=1)
            producer.send(topic, value)
    schemas = of_global_ids(host, values) if kind == "globalId" else kstore.read_schemas(host + CONFLUENT_API)
    options = kstore.ValueFormat("avro", schemas=schemas, framing="apicurio")
    for topic in APICURIO_TOPICS:
        found = kstore.scan(root, topics=topic, value=options, columns=["value"]).to_table()["value"].to_pylist()
        if found != [{"name": topic}]:
            yield f"{topic}: kstore reads {found}"
