import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * What a broker's own log reaches with the same batches, one in each call, on the same file system.
 *
 * <p>AppendRival FILE MODE DIRECTORY: FILE holds V2 batches as a producer sends them. For each line "PASSES" on the
 * standard input it appends all of them so many times, each time to a fresh file below DIRECTORY, and prints how many
 * records that were, of one pass, and the nanoseconds of all appends without opening and closing.
 */
public final class AppendRival {
    /** Appends all batches once and returns the nanoseconds that took. */
    interface Pass {
        long run(List<ByteBuffer> batches, Path directory) throws IOException;
    }

    interface Append {
        void run(UnifiedLog log, ByteBuffer batch, RequestLocal local);
    }

    static final int BATCH_LENGTH_AT = 8, LOG_OVERHEAD = 12, LEADER_EPOCH_AT = 12, RECORD_COUNT_AT = 57;
    static final int PRODUCER_EXPIRATION_MS = 86_400_000, CHECK_INTERVAL_MS = 600_000, MAX_TRANSACTION_MS = 300_000;
    static final short NO_TRANSACTION_VERSION = 2;

    static final Map<String, Pass> MODES = Map.of(
        "leader", (batches, directory) -> unified(batches, directory, AppendRival::asLeader),
        "follower", (batches, directory) -> unified(batches, directory, AppendRival::asFollower),
        "channel", AppendRival::channel);

    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    static List<ByteBuffer> batchesOf(byte[] content) {
        List<ByteBuffer> batches = new ArrayList<>();
        ByteBuffer all = ByteBuffer.wrap(content);
        for (int at = 0; at < content.length; ) {
            int size = all.getInt(at + BATCH_LENGTH_AT) + LOG_OVERHEAD;
            batches.add(all.slice(at, size));
            at += size;
        }
        return batches;
    }

    static void asLeader(UnifiedLog log, ByteBuffer batch, RequestLocal local) {
        batch.putLong(0, 0);
        log.appendAsLeader(MemoryRecords.readableRecords(batch), 0, AppendOrigin.CLIENT, local,
            VerificationGuard.SENTINEL, NO_TRANSACTION_VERSION);
    }

    static void asFollower(UnifiedLog log, ByteBuffer batch, RequestLocal local) {
        batch.putLong(0, log.logEndOffset()).putInt(LEADER_EPOCH_AT, 0);
        log.appendAsFollower(MemoryRecords.readableRecords(batch), 0);
    }

    static long unified(List<ByteBuffer> batches, Path directory, Append append) throws IOException {
        UnifiedLog log = UnifiedLog.create(directory.toFile(), new LogConfig(Map.of()), 0, 0, SCHEDULER,
            new BrokerTopicStats(), Time.SYSTEM, MAX_TRANSACTION_MS,
            new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false), CHECK_INTERVAL_MS,
            new LogDirFailureChannel(1), true, Optional.empty());
        RequestLocal local = RequestLocal.withThreadConfinedCaching();
        long start = System.nanoTime();
        for (ByteBuffer batch : batches) append.run(log, batch, local);
        long nanoseconds = System.nanoTime() - start;
        log.closeHandlers();
        return nanoseconds;
    }

    static long channel(List<ByteBuffer> batches, Path directory) throws IOException {
        try (FileChannel channel = FileChannel.open(
                directory.resolve("bare"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            long start = System.nanoTime();
            for (ByteBuffer batch : batches) {
                batch.rewind();
                while (batch.hasRemaining()) channel.write(batch);
            }
            return System.nanoTime() - start;
        }
    }

    static void remove(Path directory) throws IOException {
        try (Stream<Path> paths = Files.walk(directory)) {
            paths.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<ByteBuffer> batches = batchesOf(Files.readAllBytes(Path.of(arguments[0])));
        Pass pass = MODES.get(arguments[1]);
        if (pass == null) throw new IllegalArgumentException("unknown mode " + arguments[1]);
        long records = batches.stream().mapToLong(batch -> batch.getInt(RECORD_COUNT_AT)).sum();
        SCHEDULER.startup();
        Passes.serve(passes -> {
            long nanoseconds = 0;
            for (; passes > 0; passes--) {
                Path directory = Files.createDirectories(Path.of(arguments[2], arguments[1], "t-0"));
                nanoseconds += pass.run(batches, directory);
                remove(directory);
            }
            return records + " " + nanoseconds;
        });
        SCHEDULER.shutdown();
    }
}
