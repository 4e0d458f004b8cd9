import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;

/** Locks the file named by its argument when a line "lock" comes in, unlocks it at "unlock", and says how it went. */
final class TryLock {
    public static void main(String[] arguments) throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        try (FileChannel channel = new RandomAccessFile(arguments[0], "rw").getChannel()) {
            FileLock lock = null;
            for (String command = commands.readLine(); command != null; command = commands.readLine()) {
                if (command.equals("lock")) {
                    lock = channel.tryLock();
                } else {
                    lock.release();
                    lock = null;
                }
                System.out.println(lock == null ? "free of it" : "holds it");
            }
        }
    }
}
