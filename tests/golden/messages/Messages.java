import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.BaseRecords;
import org.apache.kafka.common.record.MemoryRecords;

/**
 * Prints what Kafka makes of each message of its internal topics: name, version, bytes in hex and Kafka's own JSON,
 * parted by tabs, for every version and four fillings: defaults; two elements in each array; the least there is in all
 * fields; one element in each array, but null where that may be.
 *
 * <p>Arguments: the jars kafka-group-coordinator, kafka-share-coordinator, kafka-transaction-coordinator,
 * kafka-metadata, kafka-clients and kafka-storage, which are on the class path too, with Jackson. Or {@code protocol}
 * and kafka-clients: then the requests and responses of Kafka's protocol, and their headers, each with a fifth column:
 * the fields that had to be set back to their defaults, because the version does not have them.
 */
public final class Messages {
    private static final String CONVERTER = "JsonConverter";
    private static final int LEAST = 2;
    private static final int NULLS = 3;
    private static final int[] ELEMENTS = {0, 2, 0, 1};

    private static final Set<String> RESET = new TreeSet<>();

    private final Random random;
    private final int filling;

    private Messages(long seed, int filling) {
        random = new Random(seed);
        this.filling = filling;
    }

    public static void main(String[] jars) throws IOException, ReflectiveOperationException {
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        boolean isProtocol = jars[0].equals("protocol");
        for (String path : List.of(jars).subList(isProtocol ? 1 : 0, jars.length)) {
            try (JarFile jar = new JarFile(path)) {
                for (JarEntry entry : Collections.list(jar.entries())) {
                    String name = entry.getName();
                    boolean isInternal = name.contains("/generated/") || name.contains("/common/metadata/")
                            || name.contains("/ConsumerProtocol");
                    isInternal &= !name.contains("/ProducerSnapshot");
                    boolean isOfProtocol = name.matches(".*/common/message/\\w*(Request|Response)(Header)?Data.*");
                    boolean isWanted = isProtocol ? isOfProtocol : isInternal;
                    if (isWanted && name.endsWith(CONVERTER + ".class") && !name.contains("$")) {
                        int end = name.length() - (CONVERTER + ".class").length();
                        print(name.substring(0, end).replace('/', '.'), isProtocol, output);
                    }
                }
            }
        }
    }

    private static void print(String className, boolean isProtocol, PrintStream output)
            throws ReflectiveOperationException {
        Class<?> type = Class.forName(className);
        Message known = (Message) type.getConstructor().newInstance();
        for (short version = known.lowestSupportedVersion(); version <= known.highestSupportedVersion(); version++) {
            for (int filling = 0; filling < ELEMENTS.length; filling++) {
                Message message = (Message) type.getConstructor().newInstance();
                if (filling > 0) {
                    new Messages(31L * version + filling, filling).fill(message);
                }
                RESET.clear();
                byte[] data = written(message, version);
                if (filling == NULLS) {
                    setNulls(message, message, version);
                    data = written(message, version);
                }
                Object json = Class.forName(className + CONVERTER)
                        .getMethod("write", type, short.class)
                        .invoke(null, message, version);
                output.println(String.join(
                        "\t",
                        type.getSimpleName().replaceAll("Data$", ""),
                        Short.toString(version),
                        HexFormat.of().formatHex(data),
                        json.toString() + (isProtocol ? "\t" + String.join(",", RESET) : "")));
            }
        }
    }

    /** Set the fields of a part of a message to null, each that the message can be written with. */
    private static void setNulls(Object part, Message message, short version) throws ReflectiveOperationException {
        for (Field field : fields(part)) {
            Object found = field.get(part);
            if (field.getType().isPrimitive() || found == null) {
                continue;
            }
            field.set(part, null);
            try {
                data(message, version);
                continue;
            } catch (NullPointerException | UnsupportedVersionException needed) {
                field.set(part, found);
            }
            for (Object inner : found instanceof Collection ? (Collection<?>) found : List.of(found)) {
                if (inner instanceof Message) {
                    setNulls(inner, message, version);
                }
            }
        }
    }

    /** Write a message; a field that the version does not have is set back to its default. */
    private static byte[] written(Message message, short version) throws ReflectiveOperationException {
        while (true) {
            try {
                return data(message, version);
            } catch (UnsupportedVersionException unknown) {
                String name = unknown.getMessage().replaceAll(".*non-default (\\S+) at.*", "$1");
                RESET.add(name);
                reset(message, name);
            }
        }
    }

    private static byte[] data(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    private static void reset(Object message, String name) throws ReflectiveOperationException {
        for (Field field : fields(message)) {
            Object found = field.get(message);
            if (field.getName().equals(name)) {
                field.set(message, field.get(message.getClass().getConstructor().newInstance()));
            } else if (found instanceof Message) {
                reset(found, name);
            } else if (found instanceof Collection) {
                for (Object element : (Collection<?>) found) {
                    if (element instanceof Message) {
                        reset(element, name);
                    }
                }
            }
        }
    }

    private static List<Field> fields(Object message) {
        List<Field> found = new ArrayList<>();
        for (Field field : message.getClass().getDeclaredFields()) {
            boolean isOfCollection = field.getName().equals("next") || field.getName().equals("prev");
            if (!Modifier.isStatic(field.getModifiers()) && !field.getName().startsWith("_") && !isOfCollection) {
                field.setAccessible(true);
                found.add(field);
            }
        }
        return found;
    }

    private void fill(Object message) throws ReflectiveOperationException {
        for (Field field : fields(message)) {
            field.set(message, value(field.getType(), field.getGenericType()));
        }
    }

    private Object value(Class<?> type, Type generic) throws ReflectiveOperationException {
        boolean isLeast = filling == LEAST;
        if (type == boolean.class) {
            return filling == 1;
        } else if (type == byte.class || type == Byte.class) {
            return (byte) (isLeast ? Byte.MIN_VALUE : random.nextInt());
        } else if (type == short.class || type == Short.class) {
            return (short) (isLeast ? Short.MIN_VALUE : random.nextInt());
        } else if (type == int.class) {
            // A port is an int that is written as 16 bits.
            return isLeast ? 0 : random.nextInt(1 << 16);
        } else if (type == Integer.class) {
            return random.nextInt();
        } else if (type == long.class || type == Long.class) {
            return isLeast ? Long.MIN_VALUE : random.nextLong();
        } else if (type == double.class) {
            return isLeast ? -0.5 : random.nextInt() / 8.0;
        } else if (type == Uuid.class) {
            return new Uuid(random.nextLong(), random.nextLong());
        } else if (type == String.class) {
            return isLeast ? "" : "s\u00e9" + random.nextInt(1000);
        } else if (type == byte[].class || type == ByteBuffer.class) {
            byte[] data = new byte[isLeast ? 0 : 1 + random.nextInt(8)];
            random.nextBytes(data);
            return type == byte[].class ? data : ByteBuffer.wrap(data);
        } else if (type == BaseRecords.class) {
            byte[] data = new byte[isLeast ? 0 : 1 + random.nextInt(8)];
            random.nextBytes(data);
            return MemoryRecords.readableRecords(ByteBuffer.wrap(data));
        } else if (Message.class.isAssignableFrom(type)) {
            Object struct = type.getConstructor().newInstance();
            fill(struct);
            return struct;
        }
        return elements(type, generic);
    }

    @SuppressWarnings("unchecked")
    private Object elements(Class<?> type, Type generic) throws ReflectiveOperationException {
        boolean isList = type == List.class;
        Type of = isList ? generic : type.getGenericSuperclass();
        Type element = ((ParameterizedType) of).getActualTypeArguments()[0];
        Collection<Object> found =
                isList ? new ArrayList<>() : (Collection<Object>) type.getConstructor().newInstance();
        for (int number = 0; number < ELEMENTS[filling]; number++) {
            found.add(value((Class<?>) element, element));
        }
        return found;
    }
}
