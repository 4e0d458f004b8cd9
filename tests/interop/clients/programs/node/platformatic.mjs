// Commands to @platformatic/kafka: node platformatic.mjs ADDRESS classic|consumer.

import {
  Admin,
  Consumer,
  FetchIsolationLevels,
  ListOffsetTimestamps,
  MessagesStreamModes,
  Producer,
  ProduceAcks,
} from "@platformatic/kafka";

import { Arrivals, answer, sorted, text } from "./asking.mjs";

const [, , ADDRESS, PROTOCOL] = process.argv;
const PATIENCE_MS = 60_000;
const TOPIC_RESOURCE = 2;
const common = { clientId: "platformatic", bootstrapBrokers: [ADDRESS], retries: 100, retryDelay: 300, autocreateTopics: false };
const membership =
  PROTOCOL === "consumer"
    ? { groupProtocol: "consumer" }
    : { sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 10_000 };
const admin = new Admin(common);
const transactional = new Map();
let member;

const bytes = (value) => (value === null ? null : Buffer.from(value));

const messages = ({ topic, partition, records }) =>
  records.map(([key, value, headers, timestamp]) => ({
    topic,
    partition,
    key: bytes(key),
    value: bytes(value),
    headers: new Map(headers.map(([name, content]) => [bytes(name), bytes(content)])),
    timestamp: BigInt(timestamp),
  }));

async function create({ topic, partitions, replicas, settings }) {
  const configs = Object.entries(settings).map(([name, value]) => ({ name, value }));
  await admin.createTopics({ topics: [topic], partitions, replicas, configs });
}

async function describe({ topic, settings }) {
  const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
  const asked = { resourceType: TOPIC_RESOURCE, resourceName: topic, configurationKeys: settings };
  const [{ configs }] = await admin.describeConfigs({ resources: [asked] });
  return {
    partitions: topics.get(topic).partitions.map((one, number) => [number, one.leader, one.replicas, one.isr]),
    settings: Object.fromEntries(configs.map((one) => [one.name, [one.value, one.configSource]])),
  };
}

async function produce({ codec, idempotent, ...command }) {
  const producer = new Producer({ ...common, idempotent, compression: codec, acks: ProduceAcks.ALL });
  try {
    const sent = messages(command);
    const { offsets } = await producer.send({ messages: sent });
    return sent.map((_, number) => Number(offsets[0].offset) + number);
  } finally {
    await producer.close();
  }
}

async function transact({ by, commits, offsets, ...command }) {
  let producer = transactional.get(by);
  if (producer === undefined) {
    // The client's time-out is the transaction's too, after which any broker aborts it: 5 s are little on a busy machine.
    const patience = { retries: 3, timeout: PATIENCE_MS };
    producer = new Producer({ ...common, idempotent: true, transactionalId: by, acks: ProduceAcks.ALL, ...patience });
    transactional.set(by, producer);
  }
  const transaction = await producer.beginTransaction();
  await transaction.send({ messages: messages(command) });
  if (offsets !== null) {
    const [groupId, topic, partition, offset] = offsets;
    const [node] = (await producer.metadata({ topics: [topic] })).brokers.keys();
    const consumer = { groupId, generationId: -1, memberId: "", coordinatorId: node };
    await transaction.addConsumer(consumer);
    await transaction.addOffset({ topic, partition, offset: BigInt(offset - 1), metadata: { consumer } });
  }
  await (commits ? transaction.commit() : transaction.abort());
}

async function read({ topic, partition, offset, count, committed }) {
  const consumer = new Consumer({ ...common, groupId: `reads-of-platformatic-${PROTOCOL}`, ...membership });
  const { topics } = await consumer.metadata({ topics: [topic] });
  const numbers = [...topics.get(topic).partitions.keys()];
  const level = committed ? "READ_COMMITTED" : "READ_UNCOMMITTED";
  const stream = await consumer.consume({
    topics: [topic],
    mode: MessagesStreamModes.MANUAL,
    offsets: numbers.map((one) => ({ topic, partition: one, offset: BigInt(one === partition ? offset : 0) })),
    isolationLevel: FetchIsolationLevels[level],
    autocommit: false,
    maxWaitTime: 500,
  });
  const arrivals = new Arrivals();
  stream.on("data", (message) => {
    if (message.partition !== partition) return;
    const headers = [...message.headers].map(([name, value]) => [text(name), text(value)]);
    arrivals.push([Number(message.offset), text(message.key), text(message.value), headers, Number(message.timestamp)]);
  });
  const found = await arrivals.take(count, PATIENCE_MS);
  await consumer.close(true);
  return found;
}

async function offset({ topic, partition, at }) {
  const ends = { earliest: ListOffsetTimestamps.EARLIEST, latest: ListOffsetTimestamps.LATEST };
  const timestamp = BigInt(ends[at] ?? at);
  const [found] = await admin.listOffsets({ topics: [{ name: topic, partitions: [{ partitionIndex: partition, timestamp }] }] });
  return Number(found.partitions[0].offset);
}

async function deleteRecords({ topic, partition, offset }) {
  const [found] = await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition, offset: BigInt(offset) }] }] });
  return Number(found.partitions[0].lowWatermark);
}

async function committed({ group, topic, partitions }) {
  const partitionIndexes = [...Array(partitions).keys()];
  const [found] = await admin.listConsumerGroupOffsets({ groups: [{ groupId: group, topics: [{ name: topic, partitionIndexes }] }] });
  return sorted(found.topics[0].partitions.map((one) => [one.partitionIndex, Number(one.committedOffset)]));
}

async function group({ group }) {
  const found = (await admin.describeGroups({ groups: [group] })).get(group);
  return { state: found.state, members: found.members.size, assignor: found.protocol };
}

async function groups() {
  return [...(await admin.listGroups({ types: [] })).keys()].sort();
}

async function join({ group, topic }) {
  member = { group, topic, arrivals: new Arrivals(), positions: new Map() };
  await enter(member);
}

/** Join a group, and again when the stream ends because the broker was away for too long. */
async function enter(joined) {
  const consumer = new Consumer({ ...common, groupId: joined.group, ...membership });
  joined.consumer = consumer;
  const again = () => {
    consumer.close(true).catch(() => {});
    setTimeout(() => enter(joined).catch(again), 500);
  };
  const stream = await consumer.consume({
    topics: [joined.topic],
    mode: MessagesStreamModes.COMMITTED,
    fallbackMode: "earliest",
    autocommit: false,
    maxWaitTime: 500,
  });
  stream.once("error", again);
  stream.on("data", (message) => {
    joined.arrivals.push([message.partition, Number(message.offset), text(message.value), message.leaderEpoch]);
  });
}

async function poll({ count, ms }) {
  const found = await member.arrivals.take(Math.max(count, 1), ms);
  for (const [partition, offset, , leaderEpoch] of found) member.positions.set(partition, { offset: offset + 1, leaderEpoch });
  return found.map(([partition, offset, value]) => [partition, offset, value]);
}

async function commit() {
  const assigned = member.consumer.assignments?.find((one) => one.topic === member.topic)?.partitions ?? [];
  const owned = [...member.positions].filter(([partition]) => assigned.includes(partition));
  const offsets = owned.map(([partition, { offset, leaderEpoch }]) => ({
    topic: member.topic,
    partition,
    offset: BigInt(offset),
    leaderEpoch,
  }));
  if (offsets.length > 0) await member.consumer.commit({ offsets });
}

function refusal(error) {
  const found = error.findBy?.("code", "PLT_KFK_PROTOCOL");
  return [found?.apiCode ?? null, found?.apiId ?? error.message];
}

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
    delete_group: ({ group }) => admin.deleteGroups({ groups: [group] }),
    join,
    poll,
    assigned: () => member.consumer.assignments?.find((one) => one.topic === member.topic)?.partitions.length ?? 0,
    commit,
    leave: () => member.consumer.close(true),
  },
  refusal,
);
