import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * What the broker's own classes reach: lookups in an index and in a segment, and the recovery of a segment.
 *
 * <p>IndexRival FILE MODE: for each line "PASSES" on the standard input it makes so many passes and prints the sum of one.
 * MODE lookup: FILE is an .index; a pass asks OffsetIndex.lookup for each offset in FILE.offsets, the sum is that of the
 * positions. For the others FILE is a .log with its indexes. translate: LogSegment.translateOffset of FILE.offsets, the sum
 * of the positions. time: LogSegment.findOffsetByTimestamp of FILE.times, the sum of the offsets found. recover:
 * LogSegment.recover, which writes the indexes anew; the sum is the size. FILE.offsets and FILE.times are int64, big-endian.
 */
public final class IndexRival {
    static final TopicPartition PARTITION = new TopicPartition("rival", 0);

    static long[] targets(String path) throws Exception {
        ByteBuffer content = ByteBuffer.wrap(Files.readAllBytes(Path.of(path)));
        long[] targets = new long[content.remaining() / 8];
        content.asLongBuffer().get(targets);
        return targets;
    }

    static long baseOffset(File file) {
        String name = file.getName();
        return Long.parseLong(name.substring(0, name.indexOf('.')));
    }

    static LogSegment open(File log) throws Exception {
        Properties settings = new Properties();
        settings.put("segment.bytes", "1073741824");
        settings.put("segment.index.bytes", "10485760");
        settings.put("index.interval.bytes", "4096");
        File directory = log.getParentFile();
        return LogSegment.open(directory, baseOffset(log), new LogConfig(settings), Time.SYSTEM, true, 0, false, "");
    }

    static Passes.Pass lookup(File file) throws Exception {
        OffsetIndex index = new OffsetIndex(file, baseOffset(file), -1, false);
        long[] offsets = targets(file + ".offsets");
        return () -> {
            long sum = 0;
            for (long offset : offsets) sum += index.lookup(offset).position();
            return sum;
        };
    }

    static Passes.Pass translate(File file) throws Exception {
        LogSegment segment = open(file);
        long[] offsets = targets(file + ".offsets");
        return () -> {
            long sum = 0;
            for (long offset : offsets) sum += segment.translateOffset(offset).position;
            return sum;
        };
    }

    static Passes.Pass time(File file) throws Exception {
        LogSegment segment = open(file);
        long[] times = targets(file + ".times");
        return () -> {
            long sum = 0;
            for (long timestamp : times) sum += segment.findOffsetByTimestamp(timestamp, 0).get().offset;
            return sum;
        };
    }

    static Passes.Pass recover(File file) throws Exception {
        LogSegment segment = open(file);
        File directory = file.getParentFile();
        KafkaScheduler scheduler = new KafkaScheduler(1, true);
        scheduler.startup();
        LeaderEpochFileCache epochs = new LeaderEpochFileCache(
            PARTITION, new LeaderEpochCheckpointFile(
                new File(directory, "leader-epoch-checkpoint"), new LogDirFailureChannel(1)), scheduler);
        ProducerStateManagerConfig producers = new ProducerStateManagerConfig(86400000, false);
        return () -> {
            segment.recover(new ProducerStateManager(PARTITION, directory, 300000, producers, Time.SYSTEM), epochs);
            return segment.size();
        };
    }

    public static void main(String[] arguments) throws Exception {
        File file = new File(arguments[0]);
        Passes.Pass pass = switch (arguments[1]) {
            case "lookup" -> lookup(file);
            case "translate" -> translate(file);
            case "time" -> time(file);
            case "recover" -> recover(file);
            default -> throw new IllegalArgumentException("unknown mode " + arguments[1]);
        };
        Passes.serve(Passes.sumOf(pass));
        System.exit(0);
    }
}
