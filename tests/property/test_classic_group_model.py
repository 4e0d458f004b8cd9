"""Goal: whatever members of a classic group do and when, none is left without an answer or in a wrong generation.
Method: random schedules of three clients, one of them static, which also die, come back, commit and see restarts; what
must hold after each step, whatever the schedule."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kstore.wire.codes import ErrorCode
from kstore.wire.messages import JoinGroupResponse, OffsetCommitRequest
from tests.making.group_calls import RANGE, REBALANCE_MS, SESSION_MS, STICKY, GroupServer
from tests.making.strategies import examples

CLIENTS = st.sampled_from(("a", "b", "c"))
INSTANCES = {"a": None, "b": None, "c": "instance"}
DELAYS = st.sampled_from((0, 3000))
METADATA = st.sampled_from(((RANGE,), (RANGE, STICKY), (("range", b"others"), STICKY)))
TIMES = st.sampled_from((0, 1, 1000, 1000, 2999, 3000, 3000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS))


class Client:
    """What a client knows: its id and generation, and its call that waits."""

    def __init__(self, name):
        self.name = name
        self.instance = INSTANCES[name]
        self.member_id, self.generation, self.leads = "", -1, False
        self.waiting = None
        self.members = ()
        self.has_synced = False


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.server = GroupServer(initial_rebalance_delay_ms=0)
        self.clients = {name: Client(name) for name in INSTANCES}
        # The calls that were made, and by whom; those whose server ended are gone with it.
        self.made = set()
        self.gone = set()
        # By generation: its leader, and the assignment of each member.
        self.leaders, self.assignments = {}, {}
        self.last_generation = 0
        self.last_seen = {}

    @rule(client=CLIENTS, protocols=METADATA)
    def join(self, client, protocols):
        one = self.clients[client]
        if one.waiting is None:
            token = self.server.join(one.member_id, instance=one.instance, protocols=protocols)
            self._made(one, token)

    @rule(client=CLIENTS)
    def sync(self, client):
        one = self.clients[client]
        if one.waiting is None and one.generation >= 0:
            brought = {name: f"{one.generation} {name}".encode() for name in one.members}
            token = self.server.sync(one.member_id, one.generation, brought, group_instance_id=one.instance)
            self._made(one, token)

    @rule(client=CLIENTS)
    def heartbeat(self, client):
        one = self.clients[client]
        if one.member_id:
            self._obey(one, self.server.heartbeat(one.member_id, one.generation, instance=one.instance))

    @rule(clients=st.lists(CLIENTS, min_size=3, max_size=9), protocols=METADATA)
    def go_on(self, clients, protocols):
        """Clients do what clients do next."""
        for client in clients:
            one = self.clients[client]
            if one.generation < 0:
                self.join(client, protocols)
            elif not one.has_synced:
                self.sync(client)
            else:
                self.heartbeat(client)
            self.look()

    @rule(client=CLIENTS)
    def leave(self, client):
        one = self.clients[client]
        if one.member_id and one.waiting is None:
            self.server.leave((one.member_id, one.instance))
            assert one.member_id not in self._members()
            one.member_id, one.generation = "", -1

    @rule(client=CLIENTS)
    def die(self, client):
        """It is forgotten what the client knew; a static one comes back under its instance id."""
        self.clients[client] = Client(client)

    @rule(milliseconds=TIMES)
    def pass_time(self, milliseconds):
        self.server.pass_time(milliseconds)

    @rule(fails=st.booleans())
    def fail(self, fails):
        self.server.fails = fails

    @rule(client=CLIENTS)
    def commit(self, client):
        one, group = self.clients[client], self.server.coordinator.groups.get("g")
        state = group.state.value if group is not None else "Empty"
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition()]
        )
        request = OffsetCommitRequest(
            group_id="g",
            member_id=one.member_id,
            generation_id_or_member_epoch=one.generation,
            group_instance_id=one.instance if one.member_id else None,
            topics=[topic],
        )
        records, response = self.server.coordinator.commit(request, version=8, now_ms=self.server.now_ms)
        self.server.append(records)
        code = response.topics[0].partitions[0].error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            assert state == "CompletingRebalance"
            return
        if code == 0:
            is_member = one.member_id in self._members()
            is_current = is_member and one.generation == self.server.generation and state != "CompletingRebalance"
            assert is_current or (state == "Empty" and one.generation < 0)
        assert bool(records) == (code == 0)
        if one.waiting is None:
            self._obey(one, code)

    @rule()
    def crash(self):
        """The process ends when the assignments are in the log and nobody was told."""
        self.server.crashes = True
        for client, one in self.clients.items():
            if one.members and not one.has_synced:
                self.sync(client)
                break
        self.server.crashes = False
        self.restart(0)

    @rule(delay_ms=DELAYS)
    def restart(self, delay_ms):
        stored = self.server.stored()
        self.gone |= self.made - self.server.answers.keys()
        self.server.settings = GroupServer(initial_rebalance_delay_ms=delay_ms).settings
        self.server.start()
        for one in self.clients.values():
            one.waiting = None
        if stored is not None:
            group = self.server.group()
            assert group.membership.generation == stored["generation"]
            assert group.state.value == ("Stable" if stored["members"] else "Empty")
            # Answers that were given before must be answered the same.
            for name, member in group.membership.members.items():
                told = self.assignments.get(stored["generation"], {}).get(name, member.assignment)
                assert told == member.assignment
        # A generation that no sync was answered of may be lost, and its number given again.
        self.last_generation = stored["generation"] if stored else 0
        for generations in (self.leaders, self.assignments):
            for number in [number for number in generations if number > self.last_generation]:
                assert generations is self.leaders, "what a sync told is in the log"
                del generations[number]

    @precondition(lambda self: self.server.coordinator.groups)
    @rule()
    def silence(self):
        """When nobody says anything, the group is empty after a while, and all calls are answered."""
        self.server.pass_time(300_000 + 4 * REBALANCE_MS + 2 * SESSION_MS)
        assert not self._members()
        assert self.made <= self.server.answers.keys() | self.gone

    @invariant()
    def look(self):
        """Give the clients their answers, and check what must always hold."""
        for one in self.clients.values():
            response = self.server.answers.get(one.waiting)
            if response is not None:
                one.waiting = None
                self._answered(one, response)
        group = self.server.coordinator.groups.get("g")
        if group is None:
            return
        facts = group.membership
        assert facts.generation >= self.last_generation, "generations rise"
        self.last_generation = facts.generation
        assert (facts.leader in facts.members) if facts.members else facts.leader is None
        for name, member in facts.members.items():
            assert facts.member_of(member.instance_id or "") == (name if member.instance_id else None)
            assert (group.state.value == "PreparingRebalance") or member.join is None
            assert (group.state.value == "CompletingRebalance") or member.sync is None
            is_kept = member.session_ends_ms is not None or member.join is not None or member.sync is not None
            assert is_kept, "a silent member is out after its session"
        waiting = {call.token for one in facts.members.values() for call in (one.join, one.sync) if call is not None}
        assert self.made - self.server.answers.keys() - self.gone == waiting, "no answer is lost"
        next_ms = self.server.coordinator.next_ms
        assert next_ms is None or next_ms > self.server.now_ms
        assert not group.membership.members or next_ms is not None

    def _made(self, one, token):
        self.made.add(token)
        one.waiting = token

    def _answered(self, one, response):
        is_join = isinstance(response, JoinGroupResponse)
        if is_join and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            one.member_id = response.member_id
        elif response.error_code:
            self._obey(one, response.error_code)
        elif is_join:
            one.member_id, one.generation, one.has_synced = response.member_id, response.generation_id, False
            one.members = [member.member_id for member in response.members]
            if response.skip_assignment or one.instance is not None:
                # A static member that came back in a generation replaces the leader's old id.
                self.leaders[one.generation] = response.leader
            assert self.leaders.setdefault(one.generation, response.leader) == response.leader, "one leader"
        else:
            one.has_synced = True
            of_generation = self.assignments.setdefault(one.generation, {})
            known = of_generation.setdefault(one.member_id, response.assignment)
            assert known == response.assignment
            assert not known or known.startswith(f"{one.generation} ".encode()), "of its generation"

    def _obey(self, one, code):
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            assert one.instance is not None or one.member_id not in self._members()
            one.member_id, one.generation = "", -1
        elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            one.generation = -1
        else:
            assert code in (0, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _members(self):
        group = self.server.coordinator.groups.get("g")
        return group.membership.members if group is not None else {}


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = examples(60, stateful_step_count=40)
