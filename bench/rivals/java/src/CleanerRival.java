import java.io.File;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * The cleaner of a broker, one thread of it, without its pauses.
 *
 * <p>CleanerRival PARTITION clean MAP_BYTES SEGMENT_BYTES: for each line on the standard input it opens the log in the
 * directory PARTITION as after a clean shutdown, cleans everything below the active segment, closes the log, waits until
 * the files that were replaced are deleted, and prints how many records it kept, and the nanoseconds of all that.
 */
public final class CleanerRival {
    static final int PRODUCER_EXPIRATION_MS = 86_400_000, CHECK_INTERVAL_MS = 600_000, MAX_TRANSACTION_MS = 300_000;
    static final int MAX_MESSAGE_BYTES = 1_048_588;

    private CleanerRival() {}

    static UnifiedLog opened(File directory, String segmentBytes, KafkaScheduler scheduler) throws Exception {
        Map<String, String> settings = Map.of(
            "cleanup.policy", "compact", "segment.bytes", segmentBytes, "file.delete.delay.ms", "0");
        return UnifiedLog.create(directory, new LogConfig(settings), 0, Long.MAX_VALUE, scheduler,
            new BrokerTopicStats(), Time.SYSTEM, MAX_TRANSACTION_MS,
            new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false), CHECK_INTERVAL_MS,
            new LogDirFailureChannel(1), true, Optional.empty());
    }

    static Cleaner cleaner(int mapBytes) throws Exception {
        Throttler unlimited = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
        return new Cleaner(0, new SkimpyOffsetMap(mapBytes, CleanerConfig.HASH_ALGORITHM),
            CleanerConfig.LOG_CLEANER_IO_BUFFER_SIZE, MAX_MESSAGE_BYTES,
            CleanerConfig.LOG_CLEANER_DEDUPE_BUFFER_LOAD_FACTOR, unlimited, Time.SYSTEM, (TopicPartition one) -> {});
    }

    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        Cleaner cleaner = cleaner(Integer.parseInt(arguments[2]));
        Passes.serve(passes -> {
            long start = System.nanoTime();
            UnifiedLog log = opened(new File(arguments[0]), arguments[3], scheduler);
            CleanerStats stats = cleaner.clean(
                new LogToClean(log, 0, log.activeSegment().baseOffset(), true)).getValue();
            log.close();
            scheduler.scheduleOnce("after the deletions", () -> {}).get();
            return stats.messagesWritten() + " " + (System.nanoTime() - start);
        });
        scheduler.shutdown();
    }
}
