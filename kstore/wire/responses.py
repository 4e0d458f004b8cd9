"""The responses of Kafka's protocol and their header, as tables for kstore.wire.schema.

Written by tests/interop/definitions.py from the definitions of Kafka 4.1: those versions that its broker offers.
"""

RESPONSES = """
ResponseHeader - 0-1 1+
  correlationId int32
ProduceResponse 0 3-13 9+
  responses []TopicProduceResponse
    name string 3-12 ignorable
    topicId uuid 13+ ignorable
    partitionResponses []PartitionProduceResponse
      index int32
      errorCode int16
      baseOffset int64
      logAppendTimeMs int64 default=-1
      logStartOffset int64 5+ default=-1 ignorable
      recordErrors []BatchIndexAndErrorMessage 8+ ignorable
        batchIndex int32
        batchIndexErrorMessage string null=8+ default=null
      errorMessage string 8+ null=8+ default=null ignorable
      currentLeader LeaderIdAndEpoch 10+ tag=0
        leaderId int32 default=-1
        leaderEpoch int32 default=-1
  throttleTimeMs int32
  nodeEndpoints []NodeEndpoint 10+ tag=0
    nodeId int32
    host string
    port int32
    rack string null=10+ default=null
FetchResponse 1 4-18 12+
  throttleTimeMs int32
  errorCode int16 7+ ignorable
  sessionId int32 7+
  responses []FetchableTopicResponse
    topic string 4-12 ignorable
    topicId uuid 13+ ignorable
    partitions []PartitionData
      partitionIndex int32
      errorCode int16
      highWatermark int64
      lastStableOffset int64 default=-1
      logStartOffset int64 5+ default=-1 ignorable
      divergingEpoch EpochEndOffset 12+ tag=0
        epoch int32 default=-1
        endOffset int64 default=-1
      currentLeader LeaderIdAndEpoch 12+ tag=1
        leaderId int32 default=-1
        leaderEpoch int32 default=-1
      snapshotId SnapshotId 12+ tag=2
        endOffset int64 default=-1
        epoch int32 default=-1
      abortedTransactions []AbortedTransaction null=4+
        producerId int64
        firstOffset int64
      preferredReadReplica int32 11+ default=-1
      records records null=4+
  nodeEndpoints []NodeEndpoint 16+ tag=0
    nodeId int32
    host string
    port int32
    rack string null=16+ default=null
ListOffsetsResponse 2 1-10 6+
  throttleTimeMs int32 2+ ignorable
  topics []ListOffsetsTopicResponse
    name string
    partitions []ListOffsetsPartitionResponse
      partitionIndex int32
      errorCode int16
      timestamp int64 default=-1
      offset int64 default=-1
      leaderEpoch int32 4+ default=-1
MetadataResponse 3 0-13 9+
  throttleTimeMs int32 3+ ignorable
  brokers []MetadataResponseBroker
    nodeId int32
    host string
    port int32
    rack string 1+ null=1+ default=null ignorable
  clusterId string 2+ null=2+ default=null ignorable
  controllerId int32 1+ default=-1 ignorable
  topics []MetadataResponseTopic
    errorCode int16
    name string null=12+
    topicId uuid 10+ ignorable
    isInternal bool 1+ ignorable
    partitions []MetadataResponsePartition
      errorCode int16
      partitionIndex int32
      leaderId int32
      leaderEpoch int32 7+ default=-1 ignorable
      replicaNodes []int32
      isrNodes []int32
      offlineReplicas []int32 5+ ignorable
    topicAuthorizedOperations int32 8+ default=-2147483648
  clusterAuthorizedOperations int32 8-10 default=-2147483648
  errorCode int16 13+ ignorable
OffsetCommitResponse 8 2-9 8+
  throttleTimeMs int32 3+ ignorable
  topics []OffsetCommitResponseTopic
    name string
    partitions []OffsetCommitResponsePartition
      partitionIndex int32
      errorCode int16
OffsetFetchResponse 9 1-9 6+
  throttleTimeMs int32 3+ ignorable
  topics []OffsetFetchResponseTopic 1-7
    name string
    partitions []OffsetFetchResponsePartition
      partitionIndex int32
      committedOffset int64
      committedLeaderEpoch int32 5+ default=-1 ignorable
      metadata string null=1+
      errorCode int16
  errorCode int16 2-7 ignorable
  groups []OffsetFetchResponseGroup 8+
    groupId string
    topics []OffsetFetchResponseTopics
      name string
      partitions []OffsetFetchResponsePartitions
        partitionIndex int32
        committedOffset int64
        committedLeaderEpoch int32 default=-1
        metadata string null=8+
        errorCode int16
    errorCode int16
FindCoordinatorResponse 10 0-6 3+
  throttleTimeMs int32 1+ ignorable
  errorCode int16 0-3
  errorMessage string 1-3 null=1-3 ignorable
  nodeId int32 0-3
  host string 0-3
  port int32 0-3
  coordinators []Coordinator 4+
    key string
    nodeId int32
    host string
    port int32
    errorCode int16
    errorMessage string null=4+
JoinGroupResponse 11 0-9 6+
  throttleTimeMs int32 2+ ignorable
  errorCode int16
  generationId int32 default=-1
  protocolType string 7+ null=7+ default=null ignorable
  protocolName string null=7+
  leader string
  skipAssignment bool 9+
  memberId string
  members []JoinGroupResponseMember
    memberId string
    groupInstanceId string 5+ null=5+ default=null ignorable
    metadata bytes
HeartbeatResponse 12 0-4 4+
  throttleTimeMs int32 1+ ignorable
  errorCode int16
LeaveGroupResponse 13 0-5 4+
  throttleTimeMs int32 1+ ignorable
  errorCode int16
  members []MemberResponse 3+
    memberId string
    groupInstanceId string null=3+
    errorCode int16
SyncGroupResponse 14 0-5 4+
  throttleTimeMs int32 1+ ignorable
  errorCode int16
  protocolType string 5+ null=5+ default=null ignorable
  protocolName string 5+ null=5+ default=null ignorable
  assignment bytes
DescribeGroupsResponse 15 0-6 5+
  throttleTimeMs int32 1+ ignorable
  groups []DescribedGroup
    errorCode int16
    errorMessage string 6+ null=6+ default=null
    groupId string
    groupState string
    protocolType string
    protocolData string
    members []DescribedGroupMember
      memberId string
      groupInstanceId string 4+ null=4+ default=null ignorable
      clientId string
      clientHost string
      memberMetadata bytes
      memberAssignment bytes
    authorizedOperations int32 3+ default=-2147483648
ListGroupsResponse 16 0-5 3+
  throttleTimeMs int32 1+ ignorable
  errorCode int16
  groups []ListedGroup
    groupId string
    protocolType string
    groupState string 4+ ignorable
    groupType string 5+ ignorable
SaslHandshakeResponse 17 0-1 -
  errorCode int16
  mechanisms []string
ApiVersionsResponse 18 0-4 3+
  errorCode int16
  apiKeys []ApiVersion
    apiKey int16
    minVersion int16
    maxVersion int16
  throttleTimeMs int32 1+ ignorable
  supportedFeatures []SupportedFeatureKey 3+ tag=0 ignorable
    name string
    minVersion int16
    maxVersion int16
  finalizedFeaturesEpoch int64 3+ tag=1 default=-1 ignorable
  finalizedFeatures []FinalizedFeatureKey 3+ tag=2 ignorable
    name string
    maxVersionLevel int16
    minVersionLevel int16
  zkMigrationReady bool 3+ tag=3 ignorable
CreateTopicsResponse 19 2-7 5+
  throttleTimeMs int32
  topics []CreatableTopicResult
    name string
    topicId uuid 7+ ignorable
    errorCode int16
    errorMessage string null=2+
    topicConfigErrorCode int16 5+ tag=0 ignorable
    numPartitions int32 5+ default=-1 ignorable
    replicationFactor int16 5+ default=-1 ignorable
    configs []CreatableTopicConfigs 5+ null=5+ ignorable
      name string
      value string null=5+
      readOnly bool
      configSource int8 default=-1
      isSensitive bool
DeleteTopicsResponse 20 1-6 4+
  throttleTimeMs int32
  responses []DeletableTopicResult
    name string null=6+
    topicId uuid 6+ ignorable
    errorCode int16
    errorMessage string 5+ null=5+ default=null ignorable
DeleteRecordsResponse 21 0-2 2+
  throttleTimeMs int32
  topics []DeleteRecordsTopicResult
    name string
    partitions []DeleteRecordsPartitionResult
      partitionIndex int32
      lowWatermark int64
      errorCode int16
InitProducerIdResponse 22 0-5 2+
  throttleTimeMs int32
  errorCode int16
  producerId int64 default=-1
  producerEpoch int16
OffsetForLeaderEpochResponse 23 2-4 4+
  throttleTimeMs int32
  topics []OffsetForLeaderTopicResult
    topic string
    partitions []EpochEndOffset
      errorCode int16
      partition int32
      leaderEpoch int32 default=-1
      endOffset int64 default=-1
AddPartitionsToTxnResponse 24 0-5 3+
  throttleTimeMs int32
  errorCode int16 4+ ignorable
  resultsByTransaction []AddPartitionsToTxnResult 4+
    transactionalId string
    topicResults []AddPartitionsToTxnTopicResult
      name string
      resultsByPartition []AddPartitionsToTxnPartitionResult
        partitionIndex int32
        partitionErrorCode int16
  resultsByTopicV3AndBelow []AddPartitionsToTxnTopicResult 0-3
    name string
    resultsByPartition []AddPartitionsToTxnPartitionResult
      partitionIndex int32
      partitionErrorCode int16
AddOffsetsToTxnResponse 25 0-4 3+
  throttleTimeMs int32
  errorCode int16
EndTxnResponse 26 0-5 3+
  throttleTimeMs int32
  errorCode int16
  producerId int64 5+ default=-1 ignorable
  producerEpoch int16 5+ default=-1 ignorable
TxnOffsetCommitResponse 28 0-5 3+
  throttleTimeMs int32
  topics []TxnOffsetCommitResponseTopic
    name string
    partitions []TxnOffsetCommitResponsePartition
      partitionIndex int32
      errorCode int16
DescribeAclsResponse 29 1-3 2+
  throttleTimeMs int32
  errorCode int16
  errorMessage string null=1+
  resources []DescribeAclsResource
    resourceType int8
    resourceName string
    patternType int8 default=3
    acls []AclDescription
      principal string
      host string
      operation int8
      permissionType int8
CreateAclsResponse 30 1-3 2+
  throttleTimeMs int32
  results []AclCreationResult
    errorCode int16
    errorMessage string null=1+
DeleteAclsResponse 31 1-3 2+
  throttleTimeMs int32
  filterResults []DeleteAclsFilterResult
    errorCode int16
    errorMessage string null=1+
    matchingAcls []DeleteAclsMatchingAcl
      errorCode int16
      errorMessage string null=1+
      resourceType int8
      resourceName string
      patternType int8 default=3
      principal string
      host string
      operation int8
      permissionType int8
DescribeConfigsResponse 32 1-4 4+
  throttleTimeMs int32
  results []DescribeConfigsResult
    errorCode int16
    errorMessage string null=1+
    resourceType int8
    resourceName string
    configs []DescribeConfigsResourceResult
      name string
      value string null=1+
      readOnly bool
      configSource int8 default=-1
      isSensitive bool
      synonyms []DescribeConfigsSynonym
        name string
        value string null=1+
        source int8
      configType int8 3+ ignorable
      documentation string 3+ null=1+ ignorable
AlterConfigsResponse 33 0-2 2+
  throttleTimeMs int32
  responses []AlterConfigsResourceResponse
    errorCode int16
    errorMessage string null=0+
    resourceType int8
    resourceName string
DescribeLogDirsResponse 35 1-4 2+
  throttleTimeMs int32
  errorCode int16 3+ ignorable
  results []DescribeLogDirsResult
    errorCode int16
    logDir string
    topics []DescribeLogDirsTopic
      name string
      partitions []DescribeLogDirsPartition
        partitionIndex int32
        partitionSize int64
        offsetLag int64
        isFutureKey bool
    totalBytes int64 4+ default=-1 ignorable
    usableBytes int64 4+ default=-1 ignorable
SaslAuthenticateResponse 36 0-2 2+
  errorCode int16
  errorMessage string null=0+
  authBytes bytes
  sessionLifetimeMs int64 1+ ignorable
CreatePartitionsResponse 37 0-3 2+
  throttleTimeMs int32
  results []CreatePartitionsTopicResult
    name string
    errorCode int16
    errorMessage string null=0+ default=null
DeleteGroupsResponse 42 0-2 2+
  throttleTimeMs int32
  results []DeletableGroupResult
    groupId string
    errorCode int16
IncrementalAlterConfigsResponse 44 0-1 1+
  throttleTimeMs int32
  responses []AlterConfigsResourceResponse
    errorCode int16
    errorMessage string null=0+
    resourceType int8
    resourceName string
OffsetDeleteResponse 47 0 -
  errorCode int16
  throttleTimeMs int32
  topics []OffsetDeleteResponseTopic
    name string
    partitions []OffsetDeleteResponsePartition
      partitionIndex int32
      errorCode int16
DescribeClusterResponse 60 0-2 0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string null=0+ default=null
  endpointType int8 1+ default=1
  clusterId string
  controllerId int32 default=-1
  brokers []DescribeClusterBroker
    brokerId int32
    host string
    port int32
    rack string null=0+ default=null
    isFenced bool 2+
  clusterAuthorizedOperations int32 default=-2147483648
DescribeProducersResponse 61 0 0+
  throttleTimeMs int32
  topics []TopicResponse
    name string
    partitions []PartitionResponse
      partitionIndex int32
      errorCode int16
      errorMessage string null=0+ default=null
      activeProducers []ProducerState
        producerId int64
        producerEpoch int32
        lastSequence int32 default=-1
        lastTimestamp int64 default=-1
        coordinatorEpoch int32
        currentTxnStartOffset int64 default=-1
DescribeTransactionsResponse 65 0 0+
  throttleTimeMs int32
  transactionStates []TransactionState
    errorCode int16
    transactionalId string
    transactionState string
    transactionTimeoutMs int32
    transactionStartTimeMs int64
    producerId int64
    producerEpoch int16
    topics []TopicData
      topic string
      partitions []int32
ListTransactionsResponse 66 0-2 0+
  throttleTimeMs int32
  errorCode int16
  unknownStateFilters []string
  transactionStates []TransactionState
    transactionalId string
    producerId int64
    transactionState string
ConsumerGroupHeartbeatResponse 68 0-1 0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string null=0+ default=null
  memberId string null=0+ default=null
  memberEpoch int32
  heartbeatIntervalMs int32
  assignment Assignment null=0+ default=null
    topicPartitions []TopicPartitions
      topicId uuid
      partitions []int32
ConsumerGroupDescribeResponse 69 0-1 0+
  throttleTimeMs int32
  groups []DescribedGroup
    errorCode int16
    errorMessage string null=0+ default=null
    groupId string
    groupState string
    groupEpoch int32
    assignmentEpoch int32
    assignorName string
    members []Member
      memberId string
      instanceId string null=0+ default=null
      rackId string null=0+ default=null
      memberEpoch int32
      clientId string
      clientHost string
      subscribedTopicNames []string
      subscribedTopicRegex string null=0+ default=null
      assignment Assignment
        topicPartitions []TopicPartitions
          topicId uuid
          topicName string
          partitions []int32
      targetAssignment Assignment
        topicPartitions []TopicPartitions
          topicId uuid
          topicName string
          partitions []int32
      memberType int8 1+ default=-1 ignorable
    authorizedOperations int32 default=-2147483648
ListConfigResourcesResponse 74 0-1 0+
  throttleTimeMs int32
  errorCode int16
  configResources []ConfigResource
    resourceName string
    resourceType int8 1+ default=16 ignorable
DescribeTopicPartitionsResponse 75 0 0+
  throttleTimeMs int32
  topics []DescribeTopicPartitionsResponseTopic
    errorCode int16
    name string null=0+
    topicId uuid
    isInternal bool
    partitions []DescribeTopicPartitionsResponsePartition
      errorCode int16
      partitionIndex int32
      leaderId int32
      leaderEpoch int32 default=-1
      replicaNodes []int32
      isrNodes []int32
      eligibleLeaderReplicas []int32 null=0+ default=null
      lastKnownElr []int32 null=0+ default=null
      offlineReplicas []int32
    topicAuthorizedOperations int32 default=-2147483648
  nextCursor Cursor null=0+ default=null
    topicName string
    partitionIndex int32
"""
