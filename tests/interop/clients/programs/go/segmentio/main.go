// Commands to kafka-go of Segment: segmentio ADDRESS.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"kstore/clients/asking"
)

var codecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

const (
	patience = time.Minute
	pause    = 100 * time.Millisecond
)

type client struct {
	address string
	kafka   *kafka.Client
	member  *member
}

func (c *client) create(command asking.Command) (any, error) {
	topic := kafka.TopicConfig{
		Topic: command.Topic, NumPartitions: int(command.Partitions), ReplicationFactor: int(command.Replicas),
	}
	for name, value := range command.Values() {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	answer, err := c.kafka.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[command.Topic]
}

func (c *client) describe(command asking.Command) (any, error) {
	found, err := c.kafka.Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{command.Topic}})
	if err != nil {
		return nil, err
	}
	partitions := [][]any{}
	for _, one := range found.Topics[0].Partitions {
		partitions = append(partitions, []any{one.ID, one.Leader.ID, ids(one.Replicas), ids(one.Isr)})
	}
	slices.SortFunc(partitions, func(a, b []any) int { return a[0].(int) - b[0].(int) })
	answer, err := c.kafka.DescribeConfigs(context.Background(), &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: command.Topic, ConfigNames: command.Names(),
		}},
	})
	if err != nil {
		return nil, err
	}
	shown := map[string]any{}
	for _, entry := range answer.Resources[0].ConfigEntries {
		shown[entry.ConfigName] = []any{entry.ConfigValue, entry.ConfigSource}
	}
	return map[string]any{"partitions": partitions, "settings": shown}, found.Topics[0].Error
}

func ids(brokers []kafka.Broker) (found []int) {
	for _, broker := range brokers {
		found = append(found, broker.ID)
	}
	return found
}

func (c *client) produce(command asking.Command) (any, error) {
	records := []kafka.Record{}
	for _, row := range command.Records {
		record := kafka.Record{Time: time.UnixMilli(row.Timestamp)}
		if row.Key != nil {
			record.Key = kafka.NewBytes([]byte(*row.Key))
		}
		if row.Value != nil {
			record.Value = kafka.NewBytes([]byte(*row.Value))
		}
		for _, header := range row.Headers {
			record.Headers = append(record.Headers, kafka.Header{Key: header[0], Value: []byte(header[1])})
		}
		records = append(records, record)
	}
	answer, err := c.send(command, records)
	for until := time.Now().Add(patience); isPassing(err) && time.Now().Before(until); {
		time.Sleep(pause)
		answer, err = c.send(command, records)
	}
	if err != nil {
		return nil, err
	}
	offsets := []int64{}
	for number := range records {
		offsets = append(offsets, answer.BaseOffset+int64(number))
	}
	return offsets, nil
}

func (c *client) send(command asking.Command, records []kafka.Record) (*kafka.ProduceResponse, error) {
	answer, err := c.kafka.Produce(context.Background(), &kafka.ProduceRequest{
		Topic: command.Topic, Partition: int(command.Partition), RequiredAcks: kafka.RequireAll,
		Compression: codecs[command.Codec], Records: kafka.NewRecordReader(records...),
	})
	if err == nil {
		err = answer.Error
	}
	return answer, err
}

// A broker was stopped, and closed the connections of the pool, or it has just started. This client asks once only.
func isPassing(err error) bool {
	var told kafka.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || (errors.As(err, &told) && told.Temporary())
}

func (c *client) read(command asking.Command) (any, error) {
	isolation := kafka.ReadUncommitted
	if command.Committed {
		isolation = kafka.ReadCommitted
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.address}, Topic: command.Topic, Partition: int(command.Partition), IsolationLevel: isolation,
		MaxWait: time.Second,
	})
	defer reader.Close()
	if err := reader.SetOffset(command.Offset); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := [][]any{}
	for len(found) < command.Count {
		message, err := reader.ReadMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		headers := [][]any{}
		for _, header := range message.Headers {
			headers = append(headers, []any{header.Key, asking.Text(header.Value)})
		}
		found = append(found, []any{
			message.Offset, asking.Text(message.Key), asking.Text(message.Value), headers, message.Time.UnixMilli(),
		})
	}
	return found, nil
}

func (c *client) offset(command asking.Command) (any, error) {
	at := command.Timestamp(kafka.FirstOffset, kafka.LastOffset)
	answer, err := c.kafka.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{command.Topic: {{Partition: int(command.Partition), Timestamp: at}}},
	})
	if err != nil {
		return nil, err
	}
	found := answer.Topics[command.Topic][0]
	switch at {
	case kafka.FirstOffset:
		return found.FirstOffset, found.Error
	case kafka.LastOffset:
		return found.LastOffset, found.Error
	}
	for offset := range found.Offsets {
		return offset, found.Error
	}
	return nil, found.Error
}

func (c *client) committed(command asking.Command) (any, error) {
	numbers := []int{}
	for number := range int(command.Partitions) {
		numbers = append(numbers, number)
	}
	answer, err := c.kafka.OffsetFetch(context.Background(), &kafka.OffsetFetchRequest{
		GroupID: command.Group, Topics: map[string][]int{command.Topic: numbers},
	})
	if err != nil {
		return nil, err
	}
	found := [][]int64{}
	for _, one := range answer.Topics[command.Topic] {
		found = append(found, []int64{int64(one.Partition), one.CommittedOffset})
	}
	slices.SortFunc(found, func(a, b []int64) int { return int(a[0] - b[0]) })
	return found, answer.Error
}

func (c *client) group(command asking.Command) (any, error) {
	answer, err := c.kafka.DescribeGroups(context.Background(), &kafka.DescribeGroupsRequest{GroupIDs: []string{command.Group}})
	if err != nil {
		return nil, err
	}
	found := answer.Groups[0]
	return map[string]any{"state": found.GroupState, "members": len(found.Members)}, found.Error
}

func (c *client) groups(asking.Command) (any, error) {
	answer, err := c.kafka.ListGroups(context.Background(), &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, group := range answer.Groups {
		names = append(names, group.GroupID)
	}
	slices.Sort(names)
	return names, answer.Error
}

func (c *client) deleteGroup(command asking.Command) (any, error) {
	answer, err := c.kafka.DeleteGroups(context.Background(), &kafka.DeleteGroupsRequest{GroupIDs: []string{command.Group}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[command.Group]
}

// member is the generation that a group is in, and what was read of its partitions.
type member struct {
	group      *kafka.ConsumerGroup
	topic      string
	read       chan kafka.Message
	mutex      sync.Mutex
	generation *kafka.Generation
	positions  map[int]int64
}

func (c *client) join(command asking.Command) (any, error) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: command.Group, Brokers: []string{c.address}, Topics: []string{command.Topic}, StartOffset: kafka.FirstOffset,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond, RebalanceTimeout: 10 * time.Second,
		JoinGroupBackoff: 500 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	c.member = &member{group: group, topic: command.Topic, read: make(chan kafka.Message)}
	go c.live(c.member)
	return nil, nil
}

func (c *client) live(m *member) {
	for {
		generation, err := m.group.Next(context.Background())
		if errors.Is(err, kafka.ErrGroupClosed) {
			return
		} else if err != nil {
			continue
		}
		m.mutex.Lock()
		m.generation, m.positions = generation, map[int]int64{}
		m.mutex.Unlock()
		for _, part := range generation.Assignments[m.topic] {
			generation.Start(func(ctx context.Context) { c.follow(ctx, m, part) })
		}
	}
}

func (c *client) follow(ctx context.Context, m *member, part kafka.PartitionAssignment) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.address}, Topic: m.topic, Partition: part.ID, MaxWait: 500 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(part.Offset); err != nil {
		return
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if errors.Is(err, kafka.ErrGenerationEnded) || errors.Is(err, io.EOF) || ctx.Err() != nil {
			return
		} else if err != nil {
			continue
		}
		select {
		case m.read <- message:
		case <-ctx.Done():
			return
		}
	}
}

func (c *client) poll(command asking.Command) (any, error) {
	found := [][]any{}
	late := time.After(time.Duration(command.Ms) * time.Millisecond)
	for len(found) < max(command.Count, 1) {
		select {
		case message := <-c.member.read:
			c.member.mutex.Lock()
			c.member.positions[message.Partition] = message.Offset + 1
			c.member.mutex.Unlock()
			found = append(found, []any{message.Partition, message.Offset, asking.Text(message.Value)})
		case <-late:
			return found, nil
		}
	}
	return found, nil
}

func (c *client) assigned(asking.Command) (any, error) {
	c.member.mutex.Lock()
	defer c.member.mutex.Unlock()
	if c.member.generation == nil {
		return 0, nil
	}
	return len(c.member.generation.Assignments[c.member.topic]), nil
}

func (c *client) commit(asking.Command) (any, error) {
	c.member.mutex.Lock()
	defer c.member.mutex.Unlock()
	return nil, c.member.generation.CommitOffsets(map[string]map[int]int64{c.member.topic: c.member.positions})
}

func (c *client) leave(asking.Command) (any, error) {
	return nil, c.member.group.Close()
}

func code(err error) any {
	var kafka kafka.Error
	if errors.As(err, &kafka) {
		return int(kafka)
	}
	return nil
}

func main() {
	address := os.Args[1]
	c := &client{address: address, kafka: &kafka.Client{Addr: kafka.TCP(address), Timeout: patience}}
	asking.Answer(map[string]func(asking.Command) (any, error){
		"create": c.create, "describe": c.describe, "produce": c.produce, "read": c.read, "offset": c.offset,
		"committed": c.committed, "group": c.group, "groups": c.groups, "delete_group": c.deleteGroup, "join": c.join,
		"poll": c.poll, "assigned": c.assigned, "commit": c.commit, "leave": c.leave,
	}, code)
}
