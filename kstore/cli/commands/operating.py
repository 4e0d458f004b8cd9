"""Commands of an operator: metadata, topics, delete-topic, configs, delete-records, move, adopt."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.arguments import WrongUseError
from kstore.cli.commands.options import Directory, Force, Json, Partitions, Reverse, Root, Topics, selection_of
from kstore.cli.output import Output
from kstore.config import MAX_INT32

TopicName = Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, report what would be done.")]
IfExists = Annotated[bool, typer.Option("--if-exists", help="Do nothing if there is no such topic.")]


@command("metadata")
def show_metadata(
    out: Output,
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A root with __cluster_metadata-0, that directory, or a *.checkpoint.")
    ],
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="What to show, such as topics/orders or configs.")
    ] = None,
    at: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The state of the records below this offset; default: all.")
    ] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show all that is below it, indented.")] = False,
    json: Json = False,
) -> int:
    """Show the state of a KRaft cluster, by its metadata log."""
    from kstore.cli.operating import metadata

    return metadata.run(directory, path, out, at=at, is_tree=tree, is_json=json)


class TopicOrder(str, Enum):
    """What `topics` sorts by."""

    NAME = "name"
    PARTITIONS = "partitions"


@command("topics")
def show_topics(
    out: Output,
    directory: Root,
    topic: Topics = None,
    create: Annotated[str | None, typer.Option(metavar="TOPIC", help="Create this topic.")] = None,
    alter: Annotated[str | None, typer.Option(metavar="TOPIC", help="Add partitions to this topic.")] = None,
    partitions: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=MAX_INT32, help="How many partitions it has then.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of the new topic; repeatable.")
    ] = None,
    topic_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The id of the new topic; default: a random one.")
    ] = None,
    if_exists: IfExists = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Create nothing if there is such a topic.")
    ] = False,
    dry_run: DryRun = False,
    force: Force = False,
    sort: Annotated[TopicOrder | None, typer.Option(help="Sort the list by this.")] = None,
    reverse: Reverse = False,
    json: Json = False,
) -> int:
    """List topics, ids and settings; create one, add partitions."""
    from kstore.cli.operating import topics
    from kstore.cli.printing.watching import Order

    if create is not None and alter is not None:
        raise WrongUseError("--create and --alter are two commands")
    if if_exists and alter is None:
        raise WrongUseError("--if-exists is for --alter TOPIC")
    if if_not_exists and create is None:
        raise WrongUseError("--if-not-exists is for --create TOPIC")
    changed = create if alter is None else alter
    if changed is None:
        if config or topic_id is not None or partitions is not None:
            raise WrongUseError("--partitions, --config and --id are for --create TOPIC or --alter TOPIC")
        return topics.run(directory, topic or [], out, is_json=json, order=Order.of(sort, is_reversed=reverse))
    if create is None and (config or topic_id is not None):
        raise WrongUseError("--config and --id are for --create; kstore configs changes settings")
    wanted = topics.TopicChange(
        name=changed,
        partitions=partitions,
        settings=tuple(config or ()),
        topic_id=topic_id,
        is_new=create is not None,
        is_conditional=if_exists or if_not_exists,
        is_dry=dry_run,
        is_forced=force,
    )
    return topics.change(directory, wanted, out, is_json=json)


@command("delete-topic")
def delete_topic(
    out: Output,
    directory: Root,
    topic: TopicName,
    if_exists: IfExists = False,
    dry_run: DryRun = False,
    force: Force = False,
    json: Json = False,
) -> int:
    """Delete a topic: records, settings, committed offsets."""
    from kstore.cli.operating import topics

    wanted = topics.TopicDeletion(name=topic, is_conditional=if_exists, is_dry=dry_run, is_forced=force)
    return topics.delete(directory, wanted, out, is_json=json)


@command("configs")
def show_configs(
    out: Output,
    directory: Root,
    topic: Topics = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set this for --topic; repeatable.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Let the default hold for --topic; repeatable.")
    ] = None,
    shows_all: Annotated[bool, typer.Option("--all", help="Show the defaults too.")] = False,
    dry_run: DryRun = False,
    force: Force = False,
    json: Json = False,
) -> int:
    """Show settings of topics and who says them, or change them."""
    from kstore.cli.operating import configs

    if not given and not unset:
        return configs.run(directory, topic or [], out, shows_all=shows_all, is_json=json)
    if not topic or len(topic) > 1:
        raise WrongUseError("--set and --unset need one --topic")
    wanted = configs.ConfigChange(
        topic=topic[0], given=tuple(given or ()), reset=tuple(unset or ()), is_dry=dry_run, is_forced=force
    )
    return configs.change(directory, wanted, out, is_json=json)


@command("delete-records")
def delete_records(
    out: Output,
    directory: Directory,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="The topic.")] = None,
    partition: Annotated[int | None, typer.Option(metavar="N", min=0, help="The partition.")] = None,
    before: Annotated[
        int | None, typer.Option(metavar="N", min=-1, help="Delete what is below this offset; -1: the high watermark.")
    ] = None,
    from_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Partitions and offsets in the JSON of kafka-delete-records.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Delete the records below an offset."""
    from kstore.cli.operating import records
    from kstore.types import TopicPartition

    one = (topic, partition, before)
    if from_file is not None:
        if one != (None, None, None):
            raise WrongUseError("--from-file says the partitions and offsets: leave --topic, --partition, --before out")
        return records.run(directory, records.read_file(from_file), out, is_dry=dry_run, is_json=json)
    if topic is None or partition is None or before is None:
        raise WrongUseError("say which records: --topic, --partition and --before, or --from-file")
    return records.run(directory, [(TopicPartition(topic, partition), before)], out, is_dry=dry_run, is_json=json)


@command("move")
def move_partitions(
    out: Output,
    directory: Directory,
    to: Annotated[str, typer.Option(metavar="DIR", help="The other log directory of the broker.")],
    topic: Topics = None,
    partition: Partitions = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Move partitions to another log directory of the broker."""
    from kstore.cli.operating import moving

    return moving.run(selection_of(directory, topic, partition), to, out, is_dry=dry_run, is_json=json)


class ReleaseName(str, Enum):
    """A release of Kafka, by whose `format` the levels of features are."""

    KAFKA_3_9 = "3.9"
    KAFKA_4_1 = "4.1"
    KAFKA_4_4 = "4.4"


@command("adopt")
def adopt_roots(
    out: Output,
    roots: Annotated[
        list[str],
        typer.Argument(metavar="ROOT...", help="The log.dirs roots of one broker; the first gets the metadata."),
    ],
    node_id: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The broker's node.id; default: that of the root, or 1.")
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The id of the cluster; default: that of the root, or a random one."),
    ] = None,
    release: Annotated[
        ReleaseName | None,
        typer.Option(help="Levels of features as by this release; default: those of the root's cluster, or 3.9's."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Settings of topics: JSON by topic, or *, and Kafka's name."),
    ] = None,
    keep_forever: Annotated[
        bool, typer.Option("--keep-forever", help="Delete nothing of topics of which no settings are known.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Also a root of a cluster: carry its topics over, and set its metadata aside."),
    ] = False,
    set_aside: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where to; made, on the same disk; default: beside the root.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Make roots ready for a KRaft broker: metadata, settings."""
    from kstore.cli.operating import adopting

    typed = adopting.TypedOptions(
        roots=roots,
        node_id=node_id,
        cluster_id=cluster_id,
        release=None if release is None else release.value,
        config=config,
        keep_forever=keep_forever,
        replace=replace,
        set_aside=set_aside,
        dry_run=dry_run,
    )
    return adopting.run(typed, out, is_json=json)
