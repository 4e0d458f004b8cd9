// Package asking answers commands, lines of JSON on standard input, by lines on standard output.
package asking

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// Row is the key, value, headers and time of a record.
type Row struct {
	Key, Value *string
	Headers    [][2]string
	Timestamp  int64
}

func (row *Row) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&row.Key, &row.Value, &row.Headers, &row.Timestamp})
}

// Command has the arguments of all commands.
type Command struct {
	Do, Topic, Codec, By, Group     string
	Partitions, Replicas, Partition int32
	Count, Ms                       int
	Offset                          int64
	At                              any
	Idempotent, Commits, Committed  bool
	Settings                        json.RawMessage
	Records                         []Row
	Offsets                         *Position
}

// Position is an offset of a group in a partition.
type Position struct {
	Group, Topic string
	Partition    int32
	Offset       int64
}

func (position *Position) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&position.Group, &position.Topic, &position.Partition, &position.Offset})
}

// Timestamp is what an offset is asked for by: a time, or that of an end.
func (command Command) Timestamp(earliest, latest int64) int64 {
	switch at := command.At.(type) {
	case float64:
		return int64(at)
	case string:
		if at == "earliest" {
			return earliest
		}
	}
	return latest
}

// Names are the settings that are to be described.
func (command Command) Names() (names []string) {
	_ = json.Unmarshal(command.Settings, &names)
	return names
}

// Values are the settings that a topic is to have.
func (command Command) Values() (values map[string]string) {
	_ = json.Unmarshal(command.Settings, &values)
	return values
}

// Text is bytes as a string, nil as null.
func Text(data []byte) *string {
	if data == nil {
		return nil
	}
	text := string(data)
	return &text
}

// Bytes are those of a string, nil of null.
func Bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

// Fail ends a program that cannot go on.
func Fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Answer answers until the input ends; code is Kafka's of an error, nil if it has none.
func Answer(handlers map[string]func(Command) (any, error), code func(error) any) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var command Command
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			Fail(err)
		}
		answer, err := handlers[command.Do](command)
		told := map[string]any{"answer": answer}
		if err != nil {
			told = map[string]any{"error": []any{code(err), err.Error()}}
		}
		if err := out.Encode(told); err != nil {
			Fail(err)
		}
	}
}
