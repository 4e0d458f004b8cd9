"""The examples of each command, which its help ends with."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "ls": (
        "kstore ls /var/lib/kafka --human --sort size -r",
        "kstore ls /var/lib/kafka --topics",
        "kstore ls --json /var/lib/kafka/orders-0",
    ),
    "cat": (
        "kstore cat /var/lib/kafka --topic orders --from -10",
        "kstore cat --json /var/lib/kafka/orders-0 --since 2024-05-01T12:00:00Z --limit 100",
        "kstore cat /var/lib/kafka --topic orders --value avro --follow",
        "kstore cat /var/lib/kafka --topic orders --format '%t %p %o %k: %s\\n'",
        "kstore cat /disk1/kafka /disk2/kafka --topic 'orders-*' --since -2d --value-regex 'order 4711'",
    ),
    "dump": (
        "kstore dump /var/lib/kafka/orders-0/00000000000000000000.log --records",
        "kstore dump /var/lib/kafka/__consumer_offsets-7 --offsets-decoder",
        "kstore dump segment-copy.bin --from 4711 --limit 3 --records",
    ),
    "offsets": (
        "kstore offsets /var/lib/kafka --topic orders --time 2024-05-01T12:00:00Z",
        "kstore offsets /var/lib/kafka --time latest --isolation read_committed",
    ),
    "transactions": (
        "kstore transactions /var/lib/kafka --hanging",
        "kstore transactions /var/lib/kafka --hanging --abort --dry-run",
    ),
    "groups": (
        "kstore groups /var/lib/kafka",
        "kstore groups /var/lib/kafka --group billing --json",
    ),
    "serve": (
        "kstore serve /var/lib/events",
        "kstore serve /backup/kafka --read-only --listen 127.0.0.1:19092",
        "kstore serve /var/lib/events --config server.properties --metrics 127.0.0.1:9308 --log-format json",
    ),
    "serve-users": (
        "kstore serve-users users.json --add billing",
        "kstore serve-users users.json --allow billing --topic orders --may read",
        "kstore serve-users users.json",
    ),
    "schemas": (
        "kstore schemas /var/lib/kafka",
        "kstore schemas /var/lib/kafka --subject orders-value --version latest",
    ),
    "stat": (
        "kstore stat /var/lib/kafka --topic orders --top 10",
        "kstore stat /var/lib/kafka --shallow --rates",
    ),
    "report": (
        "kstore report /var/lib/kafka -o report.html",
        "kstore report /var/lib/kafka --topic orders --deep --json",
    ),
    "verify": (
        "kstore verify /var/lib/kafka",
        "kstore verify /var/lib/kafka --topic orders --shallow --json",
    ),
    "recover": (
        "kstore recover /var/lib/kafka --dry-run",
        "kstore recover /var/lib/kafka/orders-0 --mode salvage --dry-run",
    ),
    "compact": (
        "kstore compact /var/lib/kafka --topic customers --dry-run",
        "kstore compact /var/lib/kafka --min-dirty-ratio 0.5",
    ),
    "retention": (
        "kstore retention /var/lib/kafka --topic orders --retention-ms 604800000 --dry-run",
        "kstore retention /var/lib/kafka --retention-bytes 1073741824",
    ),
    "import": (
        "kstore import orders.jsonl /var/lib/kafka --topic orders --partition 0",
        "kstore import - /var/lib/kafka/orders-0 --keep-offsets",
    ),
    "export": (
        "kstore export /var/lib/kafka out/ --topic orders",
        "kstore export /var/lib/kafka out/ --topic orders --value avro --schema latest --flatten",
    ),
    "restore": (
        "kstore restore /var/lib/kafka restored/ --topic orders --until 2024-05-01 --dry-run",
        "kstore restore /var/lib/kafka /var/lib/kafka --to orders-0=4200 --rename orders=old",
    ),
    "replay": (
        "kstore replay /backup --bootstrap localhost:9092 --create-topics --state state.json",
        "kstore replay /backup --bootstrap b:9093 --producer-config tls.properties --offsets --dry-run",
        "kstore replay /backup --bootstrap b:9092 --rename 'old.{topic}' --since 2024-05-01 --rate 5000",
    ),
    "metadata": (
        "kstore metadata /var/lib/kafka topics/orders --tree",
        "kstore metadata /var/lib/kafka configs --at 5000 --json",
    ),
    "topics": (
        "kstore topics /data --create orders --partitions 3 --config segment.ms=60000",
        "kstore topics /data --alter orders --partitions 6 --dry-run",
    ),
    "delete-topic": ("kstore delete-topic /data --topic orders --dry-run",),
    "configs": (
        "kstore configs /data --topic orders --all",
        "kstore configs /data --topic orders --set retention.ms=3600000",
    ),
    "delete-records": (
        "kstore delete-records /data --topic orders --partition 0 --before 4711",
        "kstore delete-records /data --from-file records.json --dry-run",
    ),
    "move": ("kstore move /disk1 --topic orders --partition 0 --to /disk2",),
    "adopt": (
        "kstore adopt /var/lib/events --dry-run",
        "kstore adopt /disk1/kafka /disk2/kafka --keep-forever --node-id 3",
    ),
    "completion": (
        "kstore completion bash > ~/.local/share/bash-completion/completions/kstore",
        "kstore completion zsh --install",
    ),
}
