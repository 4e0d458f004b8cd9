"""Schemas of the records in `__consumer_offsets`, `__transaction_state` and `__share_group_state`.

Tables for kstore.wire.schema.parse_schemas. The version of a key is the type of the record, by which the
tables of keys and values are indexed.
Source: Kafka's message definitions of the group, the transaction and the share coordinator.
"""

GROUP_KEYS = """
OffsetCommitKey 0,1 0-1 -
  group string
  topic string
  partition int32
GroupMetadataKey 2 2 -
  group string
ConsumerGroupMetadataKey 3 3 -
  groupId string
ConsumerGroupPartitionMetadataKey 4 4 -
  groupId string
ConsumerGroupMemberMetadataKey 5 5 -
  groupId string
  memberId string
ConsumerGroupTargetAssignmentMetadataKey 6 6 -
  groupId string
ConsumerGroupTargetAssignmentMemberKey 7 7 -
  groupId string
  memberId string
ConsumerGroupCurrentMemberAssignmentKey 8 8 -
  groupId string
  memberId string
ShareGroupMemberMetadataKey 10 10 -
  groupId string
  memberId string
ShareGroupMetadataKey 11 11 -
  groupId string
ShareGroupTargetAssignmentMetadataKey 12 12 -
  groupId string
ShareGroupTargetAssignmentMemberKey 13 13 -
  groupId string
  memberId string
ShareGroupCurrentMemberAssignmentKey 14 14 -
  groupId string
  memberId string
ShareGroupStatePartitionMetadataKey 15 15 -
  groupId string
ConsumerGroupRegularExpressionKey 16 16 -
  groupId string
  regularExpression string
StreamsGroupMetadataKey 17 17 -
  groupId string
StreamsGroupMemberMetadataKey 19 19 -
  groupId string
  memberId string
StreamsGroupTargetAssignmentMetadataKey 20 20 -
  groupId string
StreamsGroupTargetAssignmentMemberKey 21 21 -
  groupId string
  memberId string
StreamsGroupCurrentMemberAssignmentKey 22 22 -
  groupId string
  memberId string
StreamsGroupTopologyKey 23 23 -
  groupId string
"""

GROUP_VALUES = """
OffsetCommitValue 0,1 0-4 4+
  offset int64
  leaderEpoch int32 3+ default=-1 ignorable
  metadata string
  commitTimestamp int64
  expireTimestamp int64 1 default=-1 ignorable
  topicId uuid 4+ tag=0 ignorable
GroupMetadataValue 2 0-4 4+
  protocolType string
  generation int32
  protocol string null=0+
  leader string null=0+
  currentStateTimestamp int64 2+ default=-1 ignorable
  members []struct
    memberId string
    groupInstanceId string 3+ null=3+ default=null ignorable
    clientId string
    clientHost string
    rebalanceTimeout int32 1+ default=-1 ignorable
    sessionTimeout int32
    subscription bytes
    assignment bytes
ConsumerGroupMetadataValue 3 0 0+
  epoch int32
  metadataHash int64 tag=0
ConsumerGroupPartitionMetadataValue 4 0 0+
  topics []struct
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []struct
      partition int32
      racks []string
ConsumerGroupMemberMetadataValue 5 0 0+
  instanceId string null=0+
  rackId string null=0+
  clientId string
  clientHost string
  subscribedTopicNames []string
  subscribedTopicRegex string null=0+
  rebalanceTimeoutMs int32 default=-1
  serverAssignor string null=0+
  classicMemberMetadata struct null=0+ tag=0
    sessionTimeoutMs int32
    supportedProtocols []struct
      name string
      metadata bytes
ConsumerGroupTargetAssignmentMetadataValue 6 0 0+
  assignmentEpoch int32
  assignmentTimestamp int64 tag=0
ConsumerGroupTargetAssignmentMemberValue 7 0 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32
ConsumerGroupCurrentMemberAssignmentValue 8 0 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
    assignmentEpochs []int32 null=0+ tag=0
  partitionsPendingRevocation []struct
    topicId uuid
    partitions []int32
    assignmentEpochs []int32 null=0+ tag=0
ShareGroupMemberMetadataValue 10 0 0+
  rackId string null=0+
  clientId string
  clientHost string
  subscribedTopicNames []string
ShareGroupMetadataValue 11 0 0+
  epoch int32
  metadataHash int64
ShareGroupTargetAssignmentMetadataValue 12 0 0+
  assignmentEpoch int32
  assignmentTimestamp int64 tag=0
ShareGroupTargetAssignmentMemberValue 13 0 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32
ShareGroupCurrentMemberAssignmentValue 14 0 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
ShareGroupStatePartitionMetadataValue 15 0 0+
  initializingTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  initializedTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  deletingTopics []struct
    topicId uuid
    topicName string
ConsumerGroupRegularExpressionValue 16 0 0+
  topics []string
  version int64
  timestamp int64
StreamsGroupMetadataValue 17 0 0+
  epoch int32
  metadataHash int64
  validatedTopologyEpoch int32 tag=0 default=-1
  lastAssignmentConfigs []struct null=0+ tag=1
    key string
    value string
  storedDescriptionTopologyEpoch int32 tag=2 default=-1
  failedDescriptionTopologyEpoch int32 tag=3 default=-1
StreamsGroupMemberMetadataValue 19 0 0+
  instanceId string null=0+
  rackId string null=0+
  clientId string
  clientHost string
  rebalanceTimeoutMs int32 default=-1
  topologyEpoch int32
  processId string
  userEndpoint struct null=0+ default=null
    host string
    port uint16
  clientTags []struct
    key string
    value string
StreamsGroupTargetAssignmentMetadataValue 20 0 0+
  assignmentEpoch int32
  assignmentTimestamp int64 tag=0
StreamsGroupTargetAssignmentMemberValue 21 0 0+
  activeTasks []struct
    subtopologyId string
    partitions []int32
  standbyTasks []struct
    subtopologyId string
    partitions []int32
  warmupTasks []struct
    subtopologyId string
    partitions []int32
StreamsGroupCurrentMemberAssignmentValue 22 0 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  activeTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 null=0+ tag=0
  standbyTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 null=0+ tag=0
  warmupTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 null=0+ tag=0
  activeTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 null=0+ tag=0
  standbyTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 null=0+ tag=0
  warmupTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 null=0+ tag=0
StreamsGroupTopologyValue 23 0 0+
  epoch int32
  subtopologies []struct
    subtopologyId string
    sourceTopics []string
    sourceTopicRegex []string
    stateChangelogTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    repartitionSinkTopics []string
    repartitionSourceTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    copartitionGroups []struct
      sourceTopics []int16
      sourceTopicRegex []int16
      repartitionSourceTopics []int16
"""

TRANSACTION_KEYS = """
TransactionLogKey 0 0 -
  transactionalId string
"""

TRANSACTION_VALUES = """
TransactionLogValue 0 0-1 1+
  producerId int64
  previousProducerId int64 1+ tag=0 default=-1
  nextProducerId int64 1+ tag=1 default=-1
  producerEpoch int16
  nextProducerEpoch int16 1+ tag=3 default=-1
  transactionTimeoutMs int32
  transactionStatus int8
  transactionPartitions []struct null=0+
    topic string
    partitionIds []int32
  transactionLastUpdateTimestampMs int64
  transactionStartTimestampMs int64
  clientTransactionVersion int16 1+ tag=2
"""

SHARE_STATE_KEYS = """
ShareSnapshotKey 0 0 -
  groupId string
  topicId uuid
  partition int32
ShareUpdateKey 1 1 -
  groupId string
  topicId uuid
  partition int32
"""

SHARE_STATE_VALUES = """
ShareSnapshotValue 0 0 0+
  snapshotEpoch int32
  stateEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 tag=0 default=-1
  createTimestamp int64
  writeTimestamp int64
  stateBatches []struct
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
ShareUpdateValue 1 0 0+
  snapshotEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 tag=0 default=-1
  stateBatches []struct
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
"""

# Subscriptions and assignments of members of groups with protocol type "consumer".
CONSUMER_PROTOCOL = """
ConsumerProtocolSubscription 0 0-3 -
  topics []string
  userData bytes null=0+ default=null
  ownedPartitions []struct 1+ ignorable
    topic string
    partitions []int32
  generationId int32 2+ default=-1 ignorable
  rackId string 3+ null=3+ default=null ignorable
ConsumerProtocolAssignment 1 0-3 -
  assignedPartitions []struct
    topic string
    partitions []int32
  userData bytes null=0+ default=null
"""
