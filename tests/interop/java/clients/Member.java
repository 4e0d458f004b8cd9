import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/**
 * A member of a group in a thread of its own: it polls and commits after each poll, and keeps what it got.
 *
 * <p>As a program, Member ADDRESS TOPIC GROUP PROTOCOL ASSIGNOR...: one such member for each group until it is killed; each
 * says its partitions and its records, one line each: GROUP assigned COUNT, GROUP record PARTITION OFFSET.
 */
final class Member implements Runnable, ConsumerRebalanceListener {
    static final String SESSION_MS = "6000";
    private static final Duration POLL = Duration.ofMillis(100);

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final CountDownLatch ended = new CountDownLatch(1);
    private final CloseOptions.GroupMembershipOperation leaves;
    private volatile boolean isToEnd;
    private final Map<TopicPartition, OffsetAndMetadata> owed = new HashMap<>();
    volatile Set<TopicPartition> assigned = Set.of();
    volatile String error;
    final ConcurrentLinkedQueue<String> records = new ConcurrentLinkedQueue<>();
    final AtomicInteger rebalances = new AtomicInteger();
    final AtomicInteger refusals = new AtomicInteger();

    private Member(KafkaConsumer<byte[], byte[]> consumer, CloseOptions.GroupMembershipOperation leaves) {
        this.consumer = consumer;
        this.leaves = leaves;
    }

    static Properties properties(JavaClients.Servers servers, String group, String protocol, String assignor) {
        Properties properties = servers.with(
                "group.id", group, "group.protocol", protocol, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "metadata.max.age.ms", "3000", "default.api.timeout.ms", "180000");
        if (protocol.equals("classic")) {
            String name = "org.apache.kafka.clients.consumer." + assignor;
            properties.putAll(Map.of(
                    "partition.assignment.strategy", name, "session.timeout.ms", SESSION_MS, "heartbeat.interval.ms", "500"));
        } else {
            properties.put("group.remote.assignor", assignor);
        }
        return properties;
    }

    /** Start a member that subscribes to a topic, or to a pattern where the name begins with ^. */
    static Member start(Properties properties, String topic) {
        return start(properties, topic, CloseOptions.GroupMembershipOperation.DEFAULT);
    }

    static Member start(Properties properties, String topic, CloseOptions.GroupMembershipOperation leaves) {
        KafkaConsumer<byte[], byte[]> consumer = Producing.consumer(properties);
        Member member = new Member(consumer, leaves);
        if (!topic.startsWith("^")) {
            consumer.subscribe(Set.of(topic), member);
        } else if (properties.get("group.protocol").equals("consumer")) {
            consumer.subscribe(new SubscriptionPattern(topic), member);
        } else {
            consumer.subscribe(java.util.regex.Pattern.compile(topic), member);
        }
        Thread thread = new Thread(member);
        thread.setDaemon(true);
        thread.start();
        return member;
    }

    void close() throws InterruptedException {
        isToEnd = true;
        ended.await();
    }

    @Override
    public void run() {
        try {
            while (!isToEnd) {
                ConsumerRecords<byte[], byte[]> polled = polled();
                commit(polled);
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    records.add(record.topic() + "-" + record.partition() + ":" + record.offset());
                }
            }
            consumer.close(CloseOptions.timeout(Duration.ofSeconds(10)).withGroupMembershipOperation(leaves));
        } catch (RuntimeException failure) {
            error = Answers.nameOf(failure);
            consumer.close(CloseOptions.timeout(Duration.ZERO));
        } finally {
            ended.countDown();
        }
    }

    private ConsumerRecords<byte[], byte[]> polled() {
        try {
            return consumer.poll(POLL);
        } catch (UnknownMemberIdException removal) {
            // The server heard nothing for a session: a member of KIP-848 is told so by any request, and joins again.
            refusals.incrementAndGet();
            return ConsumerRecords.empty();
        }
    }

    /** Commit what was polled; while the group rebalances, or without this member, that is refused, and another one may
     * get these records again, or this one commits them after its next poll.
     *
     * <p>By offsets: without them a consumer leaves out, and does not say so, partitions whose position it is validating,
     * as after a restart that began another epoch of their leader. */
    private void commit(ConsumerRecords<byte[], byte[]> polled) {
        owed.putAll(polled.nextOffsets());
        try {
            if (!owed.isEmpty()) {
                consumer.commitSync(owed);
                owed.clear();
            }
        } catch (CommitFailedException | RebalanceInProgressException | UnknownMemberIdException refusal) {
            refusals.incrementAndGet();
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        rebalances.incrementAndGet();
        assigned = Set.copyOf(consumer.assignment());
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        owed.keySet().removeAll(partitions);
        assigned = consumer.assignment().stream()
                .filter(one -> !partitions.contains(one))
                .collect(Collectors.toUnmodifiableSet());
    }

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, Member> members = new TreeMap<>();
        for (int i = 1; i < arguments.length; i += 4) {
            Properties properties = properties(
                    new JavaClients.Servers(arguments[0]), arguments[i + 1], arguments[i + 2], arguments[i + 3]);
            members.put(arguments[i + 1], start(properties, arguments[i]));
        }
        Map<String, Integer> told = new TreeMap<>();
        while (true) {
            members.forEach((group, member) -> {
                int count = member.assigned.size();
                if (!Integer.valueOf(count).equals(told.put(group, count))) {
                    System.out.println(group + " assigned " + count);
                }
                for (String record = member.records.poll(); record != null; record = member.records.poll()) {
                    System.out.println(group + " record " + record);
                }
            });
            System.out.flush();
            Thread.sleep(20);
        }
    }
}
