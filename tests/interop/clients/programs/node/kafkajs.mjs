// Commands to KafkaJS: node kafkajs.mjs ADDRESS.

import kafkajs from "kafkajs";

import { Arrivals, answer, sorted, text } from "./asking.mjs";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs;
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };
const PATIENCE_MS = 60_000;
const SESSION = { sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 10_000, maxWaitTimeInMs: 500 };

const kafka = new Kafka({
  clientId: "kafkajs",
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, retries: 300, maxRetryTime: 1000 },
});
const admin = kafka.admin();
const transactional = new Map();
let member;

const messages = ({ partition, records }) =>
  records.map(([key, value, headers, timestamp]) => ({
    key,
    value,
    partition,
    headers: Object.fromEntries(headers),
    timestamp: String(timestamp),
  }));

async function create({ topic, partitions, replicas, settings }) {
  const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }));
  const wanted = { topic, numPartitions: partitions, replicationFactor: replicas, configEntries };
  return admin.createTopics({ topics: [wanted] });
}

async function describe({ topic, settings }) {
  const found = await admin.fetchTopicMetadata({ topics: [topic] });
  const asked = { type: ConfigResourceTypes.TOPIC, name: topic, configNames: settings };
  const { resources } = await admin.describeConfigs({ resources: [asked], includeSynonyms: false });
  return {
    partitions: sorted(found.topics[0].partitions.map((one) => [one.partitionId, one.leader, one.replicas, one.isr])),
    settings: Object.fromEntries(
      resources[0].configEntries.map((one) => [one.configName, [one.configValue, one.configSource]]),
    ),
  };
}

async function produce({ topic, codec, idempotent, ...command }) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 });
  await producer.connect();
  try {
    const sent = messages(command);
    const [{ baseOffset }] = await producer.send({ topic, acks: -1, compression: CODECS[codec], messages: sent });
    return sent.map((_, number) => Number(baseOffset) + number);
  } finally {
    await producer.disconnect();
  }
}

async function transact({ by, topic, commits, offsets, ...command }) {
  let producer = transactional.get(by);
  if (producer === undefined) {
    producer = kafka.producer({ transactionalId: by, idempotent: true, maxInFlightRequests: 1, retry: { retries: 3 } });
    await producer.connect();
    transactional.set(by, producer);
  }
  const transaction = await producer.transaction();
  await transaction.send({ topic, messages: messages(command) });
  if (offsets !== null) {
    const [consumerGroupId, source, partition, offset] = offsets;
    await transaction.sendOffsets({
      consumerGroupId,
      topics: [{ topic: source, partitions: [{ partition, offset: String(offset) }] }],
    });
  }
  await (commits ? transaction.commit() : transaction.abort());
}

async function read({ topic, partition, offset, count, committed }) {
  const consumer = kafka.consumer({ groupId: "reads-of-kafkajs", readUncommitted: !committed, ...SESSION });
  const arrivals = new Arrivals();
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition: source, message }) => {
      if (source !== partition || Number(message.offset) < offset) return;
      const headers = Object.entries(message.headers).map(([name, value]) => [name, text(value)]);
      const { key, value, timestamp } = message;
      arrivals.push([Number(message.offset), text(key), text(value), headers, Number(timestamp)]);
    },
  });
  consumer.seek({ topic, partition, offset: String(offset) });
  const found = await arrivals.take(count, PATIENCE_MS);
  await consumer.disconnect();
  return found;
}

async function offset({ topic, partition, at }) {
  if (typeof at === "number") {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, at);
    return Number(found.find((one) => one.partition === partition).offset);
  }
  const ends = (await admin.fetchTopicOffsets(topic)).find((one) => one.partition === partition);
  return Number(at === "earliest" ? ends.low : ends.high);
}

async function deleteRecords({ topic, partition, offset }) {
  await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] });
}

async function committed({ group, topic }) {
  const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
  return sorted(found.partitions.map((one) => [one.partition, Number(one.offset)]));
}

async function group({ group }) {
  const { groups } = await admin.describeGroups([group]);
  return { state: groups[0].state, members: groups[0].members.length, assignor: groups[0].protocol };
}

async function groups() {
  return (await admin.listGroups()).groups.map((one) => one.groupId).sort();
}

async function join({ group, topic }) {
  member = { group, topic, arrivals: new Arrivals(), positions: new Map(), assigned: 0 };
  await enter(member);
}

/** Join a group, and again when the consumer ends by itself because the broker was away. */
async function enter(joined) {
  const { group, topic } = joined;
  const consumer = kafka.consumer({ groupId: group, ...SESSION });
  joined.consumer = consumer;
  const again = () => setTimeout(() => enter(joined).catch(again), 500);
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    joined.assigned = 0;
    if (!payload.restart) again();
  });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    joined.positions.clear();
    joined.assigned = (payload.memberAssignment[topic] ?? []).length;
  });
  consumer.on(consumer.events.REBALANCING, () => {
    joined.assigned = 0;
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      joined.arrivals.push([partition, Number(message.offset), text(message.value)]);
    },
  });
}

async function poll({ count, ms }) {
  const found = await member.arrivals.take(Math.max(count, 1), ms);
  for (const [partition, offset] of found) member.positions.set(partition, offset + 1);
  return found;
}

async function commit() {
  const offsets = [...member.positions].map(([partition, offset]) => ({
    topic: member.topic,
    partition,
    offset: String(offset),
  }));
  if (offsets.length > 0) await member.consumer.commitOffsets(offsets);
}

function refusal(error) {
  const cause = error.cause ?? error.errors?.[0] ?? error.groups?.[0]?.error ?? error.partitions?.[0]?.error;
  return cause === undefined || error.code !== undefined ? [error.code ?? null, error.type ?? error.name] : refusal(cause);
}

await admin.connect();
await answer(
  {
    create,
    describe,
    produce,
    transact,
    read,
    offset,
    delete_records: deleteRecords,
    committed,
    group,
    groups,
    delete_group: ({ group }) => admin.deleteGroups([group]).then(() => null),
    join,
    poll,
    assigned: () => member.assigned,
    commit,
    leave: () => member.consumer.disconnect(),
  },
  refusal,
);
