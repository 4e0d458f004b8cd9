"""Goal: the options of the Spark source mean what they mean in Spark's Kafka source, and mistakes are named.
Method: tables of option texts against the parsed value or the message; no Spark, no file."""

from __future__ import annotations

import pytest

from kstore.config import MIB
from kstore.spark.option_names import OPTION_NAMES, Use, check_names
from kstore.spark.options import (
    EARLIEST,
    LATEST,
    Assign,
    Bound,
    EveryTopic,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    parse_read_options,
)
from kstore.types import TopicPartition
from kstore.values.formats import ValueFormat


def parse(**options: str) -> ReadOptions:
    return parse_read_options({"path": "/data", **{name.replace("__", "."): text for name, text in options.items()}})


def test_defaults_are_those_of_a_batch_read_of_every_topic() -> None:
    assert parse() == ReadOptions(
        paths=("/data",),
        topics=EveryTopic(),
        starting=Bound(option="startingOffsets", everywhere=EARLIEST),
        ending=Bound(option="endingOffsets", everywhere=LATEST),
        latest_if_no_timestamp=False,
        include_headers=False,
        min_partitions=None,
        max_records_per_partition=None,
        max_partition_bytes=None,
        fail_on_data_loss=True,
        isolation_level="read_uncommitted",
        push_filters=False,
        mode="FAILFAST",
        gives_damage=False,
    )


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        pytest.param({"path": "/data/f.small-0"}, ("/data/f.small-0",), id="path"),
        pytest.param({"path": "/data/"}, ("/data",), id="trailing-slash"),
        pytest.param({"PATH": "/data"}, ("/data",), id="name-in-capitals"),
        pytest.param({"path": "file:///data/with%20space"}, ("/data/with space",), id="file-uri"),
        pytest.param({"path": "file:/data"}, ("/data",), id="file-uri-one-slash"),
        pytest.param({"path": "/data/100%25"}, ("/data/100%25",), id="percent-in-a-plain-path"),
        pytest.param({"path": "/data/a#b?c"}, ("/data/a#b?c",), id="hash-and-question-mark"),
        pytest.param({"paths": '["/a","/b"]'}, ("/a", "/b"), id="paths"),
    ],
)
def test_paths_are_made_absolute(options: dict[str, str], paths: tuple[str, ...]) -> None:
    assert parse_read_options(options).paths == paths


def test_relative_path_is_taken_from_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/tmp")
    assert parse_read_options({"path": "logs"}).paths == ("/tmp/logs",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "path must be given", id="none"),
        pytest.param({"path": " "}, "path must not be empty", id="blank"),
        pytest.param({"path": "/a", "paths": '["/b"]'}, "only one of path and paths", id="both"),
        pytest.param({"paths": "/a,/b"}, "paths: expected a JSON list", id="not-json"),
        pytest.param({"paths": "[]"}, "paths: expected a JSON list", id="empty-list"),
        pytest.param({"paths": "[1]"}, "paths: expected a JSON list", id="number"),
        pytest.param({"path": "file://host/data"}, "must name a local path", id="file-on-a-host"),
    ],
)
def test_bad_paths_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_read_options(options)


@pytest.mark.parametrize(
    ("options", "selection"),
    [
        pytest.param({"subscribe": "a, b ,"}, Subscribe(topics=("a", "b")), id="subscribe-trimmed"),
        pytest.param({"subscribe": "a,a"}, Subscribe(topics=("a",)), id="subscribe-twice"),
        pytest.param({"subscribePattern": "a.*"}, SubscribePattern(pattern="a.*"), id="pattern"),
        pytest.param(
            {"assign": '{"a":[1,0,1],"b":[2]}'},
            Assign(partitions=(TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 2))),
            id="assign",
        ),
        pytest.param({"assign": "{}"}, Assign(partitions=()), id="assign-nothing"),
    ],
)
def test_topics_are_chosen_by_one_option(options: dict[str, str], selection: object) -> None:
    assert parse(**options).topics == selection


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"subscribe": "a", "assign": "x"}, "Only one of .* subscribe, subscribePattern, assign", id="two"),
        pytest.param({"subscribe": "a", "subscribepattern": "b"}, "Only one of", id="two-by-pattern"),
        pytest.param({"subscribe": " , "}, "subscribe: no topics", id="no-topic"),
        pytest.param({"subscribePattern": " "}, "subscribePattern must not be empty", id="no-pattern"),
        pytest.param(
            {"subscribePattern": "f.("}, r"not a regular expression: .*position 2, in f\.\(", id="bad-pattern"
        ),
        pytest.param({"assign": "a:0"}, "No topicpartitions to assign.*a:0", id="assign-text"),
        pytest.param({"assign": '{"a":'}, "assign: Expected e.g.", id="assign-cut"),
        pytest.param({"assign": '{"a": 0}'}, "assign: Expected e.g.", id="assign-number"),
        pytest.param({"assign": '{"a": ["0"]}'}, "assign: Expected e.g.", id="assign-text-number"),
        pytest.param({"assign": '{"a": [true]}'}, "assign: Expected e.g.", id="assign-true"),
        pytest.param({"assign": '{"a": [-1]}'}, "assign: Expected e.g.", id="assign-negative"),
        pytest.param({"assign": '{"a": [2147483648]}'}, "assign: Expected e.g.", id="assign-beyond-int32"),
    ],
)
def test_bad_topic_choices_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(**options)


A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        pytest.param(" Earliest ", Bound(option="startingOffsets", everywhere=EARLIEST), id="word"),
        pytest.param(
            '{"a":{"0":23,"1":-2}}', Bound(option="startingOffsets", by_partition={A0: 23, A1: EARLIEST}), id="json"
        ),
        pytest.param('{"a":{"0":10.9}}', Bound(option="startingOffsets", by_partition={A0: 10}), id="fraction-dropped"),
        pytest.param("{}", Bound(option="startingOffsets", by_partition={}), id="empty-object"),
        pytest.param(
            '{"a":{"0":9223372036854775807}}',
            Bound(option="startingOffsets", by_partition={A0: 2**63 - 1}),
            id="greatest-offset",
        ),
    ],
)
def test_starting_offsets_are_a_word_or_json(text: str, bound: Bound) -> None:
    assert parse(startingOffsets=text).starting == bound


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("latest", "starting offset can't be latest", id="latest"),
        pytest.param('{"a":{"0":-1}}', r"starting offset for a-0 can't be latest \(-1\)", id="latest-in-json"),
        pytest.param('{"a":{"0":-3}}', "startingOffsets for a-0 is -3: expected an offset of 0 or more", id="minus-3"),
        pytest.param("", "startingOffsets: Expected e.g. .*, got $", id="empty"),
        pytest.param("foo", "startingOffsets: Expected e.g. .*, got foo", id="word"),
        pytest.param('{"a":{"0":1', "startingOffsets: Expected e.g.", id="cut"),
        pytest.param("[" * 100_000, "startingOffsets: Expected e.g.", id="deep"),
        pytest.param('{"a":"earliest"}', "startingOffsets: Expected e.g.", id="word-for-a-topic"),
        pytest.param('{"a":{"0":"10"}}', "startingOffsets: Expected e.g.", id="text-offset"),
        pytest.param('{"a":{"0":true}}', "startingOffsets: Expected e.g.", id="true"),
        pytest.param('{"a":{"0":null}}', "startingOffsets: Expected e.g.", id="null"),
        pytest.param('{"a":{"0":NaN}}', "startingOffsets: Expected e.g.", id="nan"),
        pytest.param('{"a":{"0":1e400}}', "startingOffsets: Expected e.g.", id="infinite"),
        pytest.param('{"a":{"0":9223372036854775808}}', "startingOffsets: Expected e.g.", id="beyond-int64"),
        pytest.param('{"a":{"-1":0}}', "startingOffsets: Expected e.g.", id="negative-partition"),
        pytest.param('{"a":{"x":0}}', "startingOffsets: Expected e.g.", id="partition-no-number"),
        pytest.param('{"a":{"2147483648":0}}', "startingOffsets: Expected e.g.", id="partition-beyond-int32"),
    ],
)
def test_bad_starting_offsets_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(startingOffsets=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("earliest", "ending offset can't be earliest", id="earliest"),
        pytest.param('{"a":{"0":-2}}', r"ending offset for a-0 can't be earliest \(-2\)", id="earliest-in-json"),
        pytest.param("foo", "endingOffsets: Expected e.g. .*, got foo", id="word"),
    ],
)
def test_bad_ending_offsets_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(endingOffsets=text)


def test_ending_offsets_are_exclusive_or_latest() -> None:
    assert parse(endingOffsets='{"a":{"0":-1,"1":5}}').ending.by_partition == {A0: LATEST, A1: 5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"startingOffsets": '{"a":{"0":1,"1":1}}', "endingOffsets": '{"a":{"0":1}}'},
            "start offset and end offset should have the same topic-partitions; "
            "startingOffsets: a-0, a-1; endingOffsets: a-0",
            id="other-partitions",
        ),
        pytest.param(
            {"startingOffsets": '{"a":{"0":1}}', "endingOffsets": '{"a":{"0":0}}'},
            "start offset 1 is greater than the end offset 0 for topic a partition 0",
            id="ends-at-0",
        ),
        pytest.param(
            {"startingOffsets": '{"a":{"0":50}}', "endingOffsets": '{"a":{"0":10}}'},
            "start offset 50 is greater than the end offset 10 for topic a partition 0",
            id="ends-before-it-starts",
        ),
    ],
)
def test_starting_and_ending_offsets_must_agree(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(**options)


def test_ending_latest_is_never_before_the_start() -> None:
    assert parse(startingOffsets='{"a":{"0":50}}', endingOffsets='{"a":{"0":-1}}').starting.by_partition == {A0: 50}


@pytest.mark.parametrize("end", ["starting", "ending"])
def test_timestamp_wins_over_timestamps_by_partition_and_these_over_offsets(end: str) -> None:
    by_offsets = {f"{end}Offsets": '{"a":{"0":5}}'}
    by_partition = {f"{end}OffsetsByTimestamp": '{"a":{"0":1700}}', **by_offsets}
    everywhere = {f"{end}Timestamp": "1800", **by_partition}
    assert getattr(parse(**by_offsets), end) == Bound(option=f"{end}Offsets", by_partition={A0: 5})
    assert getattr(parse(**by_partition), end) == Bound(
        option=f"{end}OffsetsByTimestamp", is_timestamp=True, by_partition={A0: 1700}
    )
    assert getattr(parse(**everywhere), end) == Bound(option=f"{end}Timestamp", is_timestamp=True, everywhere=1800)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"startingTimestamp": "abc"}, "startingTimestamp: Expected a single long value.*abc", id="word"),
        pytest.param({"endingTimestamp": "1.5"}, "endingTimestamp: Expected a single long value", id="fraction"),
        pytest.param({"endingTimestamp": "9223372036854775808"}, "Expected a single long value", id="beyond-int64"),
        pytest.param({"startingOffsetsByTimestamp": "xyz"}, "Expected e.g. .*123456789.*, got xyz", id="not-json"),
        pytest.param(
            {"startingOffsetsByTimestampStrategy": "foo"},
            "startingOffsetsByTimestampStrategy must be error or latest, got foo",
            id="strategy",
        ),
        pytest.param({"minPartitions": "0"}, "minPartitions must be positive, got 0", id="no-partition"),
        pytest.param({"minPartitions": "-1"}, "minPartitions must be positive, got -1", id="negative"),
        pytest.param({"minPartitions": "x"}, 'minPartitions must be a whole number.*"x"', id="min-partitions-word"),
        pytest.param({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be positive", id="no-record"),
        pytest.param({"maxRecordsPerPartition": "1_0"}, "maxRecordsPerPartition must be a whole", id="underscore"),
        pytest.param({"maxPartitionBytes": "0"}, "maxPartitionBytes must be a positive number of bytes", id="no-byte"),
        pytest.param({"maxPartitionBytes": "5x"}, 'maxPartitionBytes must be.*got "5x"', id="unit"),
        pytest.param({"maxPartitionBytes": "999999999999g"}, "maxPartitionBytes must be", id="too-many-bytes"),
        pytest.param({"includeHeaders": "maybe"}, 'includeHeaders must be true or false, got "maybe"', id="headers"),
        pytest.param({"failOnDataLoss": "maybe"}, 'failOnDataLoss must be true or false, got "maybe"', id="loss"),
        pytest.param({"pushFilters": "1"}, "pushFilters must be true or false", id="push-filters"),
        pytest.param({"kafka__isolation__level": "foo"}, "Invalid value foo for .*isolation.level", id="isolation"),
    ],
)
def test_bad_values_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(**options)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("134217728", 128 * MIB),
        ("64m", 64 * MIB),
        ("64MB", 64 * MIB),
        (" 8 ", 8),
        ("2k", 2048),
        ("3g", 3 << 30),
    ],
)
def test_max_partition_bytes_takes_units(text: str, size: int) -> None:
    assert parse(maxPartitionBytes=text).max_partition_bytes == size


@pytest.mark.parametrize("word", ["true", "TRUE", "True"])
def test_booleans_are_read_in_any_case(word: str) -> None:
    options = parse(includeHeaders=word, pushFilters=word, failOnDataLoss="False")
    assert (options.include_headers, options.push_filters, options.fail_on_data_loss) == (True, True, False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kafka.auto.offset.reset", "Kafka option 'auto.offset.reset' is not supported: set startingOffsets"),
        ("kafka.key.deserializer", "Kafka option 'key.deserializer' is not supported: keys are"),
        ("kafka.value.deserializer", "Kafka option 'value.deserializer' is not supported: values are"),
        ("kafka.enable.auto.commit", "Kafka option 'enable.auto.commit' is not supported"),
        ("kafka.interceptor.classes", "Kafka option 'interceptor.classes' is not supported"),
    ],
)
def test_client_options_that_would_change_the_answer_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_read_options({"path": "/data", name: "x"})


@pytest.mark.parametrize(
    "name",
    [
        "kafka.bootstrap.servers",
        "kafka.group.id",
        "groupIdPrefix",
        "kafka.check.crcs",
        "kafka.max.poll.records",
        "maxTriggerDelay",
    ],
)
def test_options_without_meaning_here_are_ignored(name: str) -> None:
    assert parse_read_options({"path": "/data", name: "x"}) == parse()


@pytest.mark.parametrize(
    "name",
    [
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
    ],
)
def test_ignored_numbers_must_still_be_numbers(name: str) -> None:
    assert parse_read_options({"path": "/data", name: "10"}) == parse()
    with pytest.raises(ValueError, match=name):
        parse_read_options({"path": "/data", name: "x"})


def test_least_offsets_per_trigger_above_the_most_is_refused() -> None:
    with pytest.raises(ValueError, match=r"minOffsetsPerTrigger \(20\) is higher than maxOffsetsPerTrigger \(10\)"):
        parse(minOffsetsPerTrigger="20", maxOffsetsPerTrigger="10")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("subscibe", r"unknown option subscibe; did you mean subscribe\?"),
        ("startingOffset", r"unknown option startingOffset; did you mean startingOffsets\?"),
        ("FAILONDATALOS", r"unknown option FAILONDATALOS; did you mean failOnDataLoss\?"),
        ("maxOffsetPerTrigger", r"did you mean maxOffsetsPerTrigger\?"),
        ("x", "unknown option x; read knows assign, .*, subscribe, subscribePattern, .*, valueSchemaId$"),
        ("kafka", "unknown option kafka; "),
        ("checkpointLocation", "unknown option checkpointLocation; "),
    ],
)
def test_unknown_name_is_refused_with_the_nearest_one(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_read_options({"path": "/data", name: "x"})


def test_name_of_a_sink_s_option_does_not_pass_for_a_selection_of_topics() -> None:
    with pytest.raises(ValueError, match="unknown option topic; "):
        parse_read_options({"path": "/data", "topic": "flights"})
    check_names(["topic", "path", "includeHeaders", "kafka.acks"], "write")
    check_names(["checkpointlocation", "queryname", "topic"], "writeStream")
    with pytest.raises(ValueError, match="unknown option subscribe; write knows "):
        check_names(["subscribe"], "write")


@pytest.mark.parametrize("use", OPTION_NAMES)
def test_every_name_is_known_in_any_case(use: Use) -> None:
    for name in OPTION_NAMES[use]:
        check_names([name, name.lower(), name.upper()], use)
        wrong = name[:-1] + ("x" if name[-1] != "x" else "y")
        with pytest.raises(ValueError, match=f"unknown option {wrong}; did you mean "):
            check_names([wrong], use)


@pytest.mark.parametrize(
    "name",
    [
        "kafka.isolaton.level",
        "kafka.isolation.Level ",
        "kafka.isolation_level",
        "kafka.isolationLevel",
        "kafka.isolation",
        "KAFKA.ISOLATION.LEVELS",
        "kafka.isolation.leve",
    ],
)
def test_a_misspelled_isolation_level_is_refused(name: str) -> None:
    for use in ("read", "readStream"):
        with pytest.raises(ValueError, match=r"unknown option .*; did you mean kafka\.isolation\.level\?"):
            check_names([name], use)


# ConsumerConfig, ProducerConfig and AdminClientConfig of Kafka 4.1.
SETTINGS_OF_CLIENTS = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.offset.reset batch.size bootstrap.controllers
    bootstrap.servers buffer.memory check.crcs client.dns.lookup client.id client.rack compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms default.api.timeout.ms
    delivery.timeout.ms enable.auto.commit enable.idempotence enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms interceptor.classes internal.leave.group.on.close
    internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class
    sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    security.protocol security.providers send.buffer.bytes session.timeout.ms share.acknowledgement.mode
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
    ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type transaction.timeout.ms transaction.two.phase.commit.enable transactional.id
    value.deserializer value.serializer
"""


def test_settings_of_kafka_s_clients_pass() -> None:
    names = [f"kafka.{name}" for name in SETTINGS_OF_CLIENTS.split()]
    assert "kafka.isolation.level" in names
    for use in ("read", "readStream"):
        check_names(names, use)


@pytest.mark.parametrize(
    "name", ["kafka.anything.at.all", "KAFKA.ssl.key", "__internal", "spark.x", "owner", "provider"]
)
def test_names_of_kafka_s_clients_and_of_spark_pass(name: str) -> None:
    assert parse_read_options({"path": "/data", name: "x"}) == parse()


@pytest.mark.parametrize(("word", "mode"), [("permissive", "PERMISSIVE"), ("FailFast", "FAILFAST"), (None, "FAILFAST")])
def test_mode_is_a_word_in_any_case(word: str | None, mode: str) -> None:
    options = parse() if word is None else parse(mode=word)
    assert (options.mode, options.on_error) == (mode, "skip" if mode == "PERMISSIVE" else "raise")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "DROPMALFORMED"}, "mode must be FAILFAST or PERMISSIVE, got DROPMALFORMED"),
        ({"mode": ""}, "mode must be FAILFAST or PERMISSIVE, got $"),
        ({"rows": "x"}, "rows must be records or damage, got x"),
    ],
)
def test_bad_mode_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(**options)


def test_formats_of_keys_and_values_have_options_of_their_own() -> None:
    values = parse(
        valueFormat="Avro", keyFormat="long", valueSchemaId="7", schemas="/disk/", valueMode="failfast"
    ).values
    assert values is not None
    assert values.formats == {
        "value": ValueFormat("avro", schemas="/disk", schema_id=7),
        "key": ValueFormat("long"),
    }
    assert (values.mode, values.corrupt_columns) == ("FAILFAST", [])
    assert parse().values is None


def test_the_mode_of_values_is_not_that_of_damage() -> None:
    options = parse(valueFormat="avro", mode="PERMISSIVE", valueMode="DROPMALFORMED")
    assert options.values is not None
    assert (options.mode, options.values.mode) == ("PERMISSIVE", "DROPMALFORMED")
    permissive = parse(valueFormat="avro", keyFormat="avro").values
    assert permissive is not None
    assert permissive.corrupt_columns == ["_corrupt_value", "_corrupt_key"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueFormat": "arvo"}, "valueFormat: expected one of the formats avro, "),
        ({"valueSchema": "x"}, "valueSchema is of no use without valueFormat"),
        ({"valueFormat": "avro", "keySchemaId": "1"}, "keySchemaId is of no use without keyFormat"),
        ({"schemas": "/x"}, "schemas is of no use without valueFormat"),
        ({"valueMode": "FAILFAST"}, "valueMode is of no use without valueFormat"),
        (
            {"valueFormat": "avro", "valueMode": "x"},
            "valueMode must be one of FAILFAST, PERMISSIVE, DROPMALFORMED, got X",
        ),
        ({"valueFormat": "avro", "valueFraming": "x"}, "valueFormat: framing must be "),
        ({"valueFormat": "avro", "valueMessageName": "x"}, "valueFormat: .* takes no message_name"),
        ({"valueFormat": "avro", "valueSchemaId": "x"}, "valueSchemaId must be a whole number"),
        ({"valueFormats": "avro"}, r"unknown option valueFormats; did you mean valueFormat\?"),
        ({"schema": "avro"}, r"unknown option schema; did you mean schemas\?"),
    ],
)
def test_wrong_options_of_formats_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_read_options({"path": "/data", **options})


def test_a_tier_and_its_keys_are_paths() -> None:
    options = parse(tier="/tier", tierKey__Key1="/keys/one.pem", tierkey__key2="/keys/two.pem")
    assert options.tier == "/tier"
    assert options.tier_keys == (("key1", "/keys/one.pem"), ("key2", "/keys/two.pem"))
    assert parse().env is None
    with pytest.raises(ValueError, match="without tier"):
        parse(tierKey__key1="/keys/one.pem")
    assert parse(tier="/tier", tierEpoch="3").tier_epoch == 3
    with pytest.raises(ValueError, match="tierEpoch is of no use without tier"):
        parse(tierEpoch="3")
    with pytest.raises(ValueError, match="tierEpoch must be from 0"):
        parse(tier="/tier", tierEpoch="-1")
    with pytest.raises(ValueError, match="unknown option"):
        parse(tier="/tier", tierKey__="/keys/one.pem")


def test_the_memory_for_an_encrypted_chunk_is_a_size() -> None:
    assert parse(tier="/tier", maxDecryptedBytes="512m").max_decrypted_bytes == 2**29
    assert parse(tier="/tier").max_decrypted_bytes is None
    with pytest.raises(ValueError, match="maxDecryptedBytes is of no use without tier"):
        parse(maxDecryptedBytes="512m")
    with pytest.raises(ValueError, match="maxDecryptedBytes must be from 1 to 2147483647"):
        parse(tier="/tier", maxDecryptedBytes="2g")
