import java.io.*;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/** Writes vectors.bin: of 100,000 keys the murmur2 hash (int32) and the partition of 1 + number % 1000 (uint16), big-endian.
 *  Keys come from splitmix64, seed 42: a length of up to 64 bytes, of each 1000th key up to 5000, then 8 bytes a word.
 *  Run with kafka-clients on the class path: java Vectors.java vectors.bin */
public class Vectors {
    static long state = 42;

    static long next() {
        state += 0x9e3779b97f4a7c15L;
        long z = state;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    public static void main(String[] arguments) throws IOException {
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(arguments[0])))) {
            for (int number = 0; number < 100_000; number++) {
                byte[] key = new byte[(int) Long.remainderUnsigned(next(), number % 1000 == 999 ? 5001 : 65)];
                for (int at = 0; at < key.length; at += 8) {
                    long word = next();
                    for (int i = 0; i < 8 && at + i < key.length; i++) key[at + i] = (byte) (word >>> (8 * i));
                }
                out.writeInt(Utils.murmur2(key));
                out.writeShort(BuiltInPartitioner.partitionForKey(key, 1 + number % 1000));
            }
        }
    }
}
