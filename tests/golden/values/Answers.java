// What Apache Avro's Java library reads in values: `java -cp ... Answers.java cases.jsonl > answers.jsonl`.
// A case has "writer", "reader" (texts), "references" (texts that both may name), "data" (hex); its answer is a line:
// {"error": "..."}, or {"value": ...} with logical types converted by Avro's own conversions.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileReader;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

public class Answers {
    static final ObjectMapper JSON = new ObjectMapper();
    static final GenericData DATA = new GenericData();

    public static void main(String[] args) throws Exception {
        DATA.addLogicalTypeConversion(new Conversions.DecimalConversion());
        DATA.addLogicalTypeConversion(new Conversions.UUIDConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.DateConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampNanosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampNanosConversion());
        try (BufferedReader lines = new BufferedReader(new FileReader(args[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            }
        }
    }

    static ObjectNode answer(JsonNode test) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            Schema writer = parsed(test, "writer");
            Schema reader = parsed(test, "reader");
            byte[] bytes = HexFormat.of().parseHex(test.get("data").asText());
            BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(bytes, null);
            Object value = new GenericDatumReader<Object>(writer, reader, DATA).read(null, decoder);
            answer.set("value", shown(value));
        } catch (Exception error) {
            answer.put("error", error.getClass().getSimpleName());
        }
        return answer;
    }

    static Schema parsed(JsonNode test, String field) {
        Schema.Parser parser = new Schema.Parser();
        for (JsonNode reference : test.get("references")) {
            parser.parse(reference.asText());
        }
        return parser.parse(test.get(field).asText());
    }

    static JsonNode tagged(String kind, JsonNode value) {
        ObjectNode node = JSON.createObjectNode();
        node.set(kind, value);
        return node;
    }

    static JsonNode tagged(String kind, String value) {
        return tagged(kind, JSON.getNodeFactory().textNode(value));
    }

    static JsonNode shown(Object value) {
        if (value instanceof IndexedRecord record) {
            ObjectNode fields = JSON.createObjectNode();
            for (Schema.Field field : record.getSchema().getFields()) {
                fields.set(field.name(), shown(record.get(field.pos())));
            }
            return tagged("record", fields);
        }
        if (value instanceof List<?> list) {
            ArrayNode items = JSON.createArrayNode();
            list.forEach(item -> items.add(shown(item)));
            return items;
        }
        if (value instanceof Map<?, ?> map) {
            ObjectNode entries = JSON.createObjectNode();
            TreeMap<String, Object> sorted = new TreeMap<>();
            map.forEach((key, each) -> sorted.put(key.toString(), each));
            sorted.forEach((key, each) -> entries.set(key, shown(each)));
            return tagged("map", entries);
        }
        if (value instanceof GenericFixed fixed) {
            return fixedShown(fixed);
        }
        if (value instanceof ByteBuffer buffer) {
            byte[] bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
            return tagged("bytes", HexFormat.of().formatHex(bytes));
        }
        return scalar(value);
    }

    static JsonNode fixedShown(GenericFixed fixed) {
        if (!"duration".equals(fixed.getSchema().getProp("logicalType"))) {
            return tagged("bytes", HexFormat.of().formatHex(fixed.bytes()));
        }
        ByteBuffer numbers = ByteBuffer.wrap(fixed.bytes()).order(ByteOrder.LITTLE_ENDIAN);
        ArrayNode parts = JSON.createArrayNode();
        for (int i = 0; i < 3; i++) {
            parts.add(Integer.toUnsignedLong(numbers.getInt()));
        }
        return tagged("duration", parts);
    }

    static JsonNode scalar(Object value) {
        if (value instanceof BigDecimal decimal) {
            return tagged("decimal", decimal.toPlainString());
        }
        if (value instanceof LocalDate date) {
            return tagged("days", Long.toString(date.toEpochDay()));
        }
        if (value instanceof LocalTime time) {
            return tagged("time", Long.toString(time.toNanoOfDay()));
        }
        if (value instanceof Instant instant) {
            return tagged("instant", nanos(instant.getEpochSecond(), instant.getNano()));
        }
        if (value instanceof LocalDateTime local) {
            return tagged("local", nanos(local.toEpochSecond(ZoneOffset.UTC), local.getNano()));
        }
        if (value instanceof Float number) {
            return tagged("double", Double.toString(number.doubleValue()));
        }
        if (value instanceof Double number) {
            return tagged("double", Double.toString(number));
        }
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return JSON.valueToTree(value);
        }
        // Strings, enums, UUIDs.
        return JSON.getNodeFactory().textNode(value.toString());
    }

    static String nanos(long seconds, int nanos) {
        return BigInteger.valueOf(seconds).multiply(BigInteger.valueOf(1_000_000_000L)).add(BigInteger.valueOf(nanos)).toString();
    }
}
