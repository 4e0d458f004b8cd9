package org.apache.kafka.clients.producer.internals;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.MetadataSnapshot;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.MetadataResponse.PartitionMetadata;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;

/**
 * What Kafka's own RecordAccumulator and BufferPool do in a second; in their package, since they are not public.
 *
 * <p>ProducerRival FILE MODE VALUE_BYTES PASS_COUNT: FILE holds values of VALUE_BYTES, one behind the other. For each line
 * "PASSES" on the standard input it makes so many passes of PASS_COUNT records, or pairs of a pool, and prints the count of
 * one pass and the nanoseconds of all: those in which the appenders ran, while a drainer completed what they filled.
 */
public final class ProducerRival {
    static final int BATCH_SIZE = 16384, LINGER_MS = 5, DELIVERY_TIMEOUT_MS = 120_000, MAX_BLOCK_MS = 10_000;
    static final int RETRY_BACKOFF_MS = 100, RETRY_BACKOFF_MAX_MS = 1000, MAX_REQUEST_SIZE = 1 << 20;
    static final long BUFFER_MEMORY = 32L << 20, IDLE_NANOS = 1_000_000;
    static final String TOPIC = "t";
    static final Header[] NO_HEADERS = new Header[0];

    final byte[][] values;
    final MetadataSnapshot metadata;
    final RecordAccumulator accumulator;
    final Thread drainer = new Thread(this::drain, "drainer");
    volatile boolean isOver;

    ProducerRival(byte[][] values) {
        this.values = values;
        Node node = new Node(0, "localhost", 9092);
        PartitionMetadata partition = new PartitionMetadata(Errors.NONE, new TopicPartition(TOPIC, 0),
            Optional.of(node.id()), Optional.empty(), List.of(0), List.of(0), List.of());
        metadata = new MetadataSnapshot("cluster", Map.of(0, node), List.of(partition), Set.of(), Set.of(), Set.of(),
            node, Map.of());
        accumulator = new RecordAccumulator(new LogContext(), BATCH_SIZE, Compression.NONE, LINGER_MS, RETRY_BACKOFF_MS,
            RETRY_BACKOFF_MAX_MS, DELIVERY_TIMEOUT_MS, new Metrics(), "bench", Time.SYSTEM, null, pool());
        drainer.setDaemon(true);
        drainer.start();
    }

    static BufferPool pool() {
        return new BufferPool(BUFFER_MEMORY, BATCH_SIZE, new Metrics(), Time.SYSTEM, "bench");
    }

    void drain() {
        while (!isOver) {
            long now = System.currentTimeMillis();
            Set<Node> ready = accumulator.ready(metadata, now).readyNodes;
            if (ready.isEmpty()) {
                LockSupport.parkNanos(IDLE_NANOS);
                continue;
            }
            for (List<ProducerBatch> batches : accumulator.drain(metadata, ready, MAX_REQUEST_SIZE, now).values()) {
                for (ProducerBatch batch : batches) {
                    if (batch.complete(0, -1)) {
                        accumulator.completeBatch(batch);
                        accumulator.deallocate(batch);
                    }
                }
            }
        }
    }

    void append(int count) {
        Cluster cluster = metadata.cluster();
        try {
            for (int i = 0; i < count; i++) {
                long now = System.currentTimeMillis();
                RecordAccumulator.RecordAppendResult result = accumulator.append(TOPIC, 0, now, null,
                    values[i % values.length], NO_HEADERS, null, MAX_BLOCK_MS, now, cluster);
                if (result.batchIsFull || result.newBatchCreated) LockSupport.unpark(drainer);
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    long appendFrom(int threads, int count) throws InterruptedException {
        Thread[] appenders = new Thread[threads];
        for (int i = 0; i < threads; i++) appenders[i] = new Thread(() -> append(count / threads));
        long start = System.nanoTime();
        for (Thread appender : appenders) appender.start();
        for (Thread appender : appenders) appender.join();
        return System.nanoTime() - start;
    }

    static long cyclePool(BufferPool pool, int count) throws InterruptedException {
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            ByteBuffer buffer = pool.allocate(BATCH_SIZE, MAX_BLOCK_MS);
            buffer.put(0, (byte) 1);
            pool.deallocate(buffer);
        }
        return System.nanoTime() - start;
    }

    static byte[][] valuesOf(Path file, int size) throws IOException {
        byte[] content = Files.readAllBytes(file);
        byte[][] values = new byte[content.length / size][size];
        for (int i = 0; i < values.length; i++) System.arraycopy(content, i * size, values[i], 0, size);
        return values;
    }

    public static void main(String[] arguments) throws Exception {
        byte[][] values = valuesOf(Path.of(arguments[0]), Integer.parseInt(arguments[2]));
        String mode = arguments[1];
        int count = Integer.parseInt(arguments[3]);
        BufferPool pool = pool();
        ProducerRival rival = new ProducerRival(values);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            long nanoseconds = 0;
            for (int passes = Integer.parseInt(line.trim()); passes > 0; passes--) {
                nanoseconds += switch (mode) {
                    case "pool" -> cyclePool(pool, count);
                    case "append" -> rival.appendFrom(1, count);
                    case "append from two threads" -> rival.appendFrom(2, count);
                    default -> throw new IllegalArgumentException("unknown mode " + mode);
                };
            }
            System.out.println(count + " " + nanoseconds);
            System.out.flush();
        }
        rival.isOver = true;
    }
}
