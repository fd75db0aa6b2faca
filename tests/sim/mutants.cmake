# Planted bugs: hvd_sim_mutant(<name> <file> <what is there, once> <what is put there> <what that is>), where
# the file is one of core/src.
# Each becomes a program hvd_sim_<name>, which the test sim_mutants expects to break an invariant.

hvd_sim_mutant(stale_announcements policy/protocol.cpp
  [[if (message.epoch != epoch_) {]] [[if (message.epoch > epoch_) {]]
  "an announcement of an earlier epoch counts")
hvd_sim_mutant(order_by_rank policy/protocol.cpp
  [[concerned[static_cast<std::size_t>(rank)].push_back(decisions.size());]]
  [[auto& mine = concerned[static_cast<std::size_t>(rank)];
      mine.insert(rank % 2 == 0 ? mine.end() : mine.begin(), decisions.size());]]
  "the order of batches depends on the rank")
hvd_sim_mutant(fusion_by_rank policy/protocol.cpp
  [[decide(batch_for(members.front(), tensors), members);]]
  [[for (const int rank : members) {
        FusedBatch batch = batch_for(rank, tensors);
        if (rank % 2 != 0) std::reverse(batch.names.begin(), batch.names.end());
        decide(std::move(batch), {rank});
      }]]
  "the order within a fused batch depends on the rank")
hvd_sim_mutant(half_a_group policy/negotiator.cpp
  [[if (group.whole != group.shares.size()) return false;]] [[]]
  "a group is over when members of it are still to come")
hvd_sim_mutant(groups_may_differ policy/negotiator.cpp
  [[if (group.open.empty()) {
      for (]] [[if (true) {
      for (]]
  "a group runs though its ranks have named different members")
hvd_sim_mutant(joins_by_one policy/negotiator.cpp
  [[if (std::ssize(joined_) < size_) return;]] [[if (std::ssize(joined_) < size_ - 1) return;]]
  "one rank too few has to join")
hvd_sim_mutant(join_overtakes policy/negotiator.cpp
  [[after_ready_.emplace_back(AllJoined{rank});]] [[decided_.emplace_back(AllJoined{rank});]]
  "the end of a join overtakes tensors that are ready")
hvd_sim_mutant(resume_forgets engine/tensor_table.cpp
  [[stopped_ = false;
  announce_again();]] [[stopped_ = false;]]
  "what was taken back is not announced again")
hvd_sim_mutant(turn_kept engine/tensor_table.cpp
  [[for (PendingTensor* const tensor : turn_.tensors) tensor->scheduled = false;]] [[]]
  "a turn that is taken back keeps its tensors")
hvd_sim_mutant(old_turn_withdrawn engine/tensor_table.cpp
  [[if (of_this && !std::all_of(]] [[if (turn_.sequence != 0 && !std::all_of(]]
  "a thaw takes back a turn of an earlier schedule that still runs")
hvd_sim_mutant(digest_of_plan_only policy/replay.cpp
  [[return {begun_, mix(digest_, batch),]] [[return {begun_, mix(digest_, 0),]]
  "the digest does not tell collectives apart")
hvd_sim_mutant(shape_not_matched policy/replay.cpp
  [[return request == planned;]] [[return request.name == planned.name && request.kind == planned.kind;]]
  "the frozen schedule takes an operation of another shape")
hvd_sim_mutant(sequence_numbers_reused policy/replay.cpp
  [[return (std::uint64_t{position.epoch} << kEpochShift) +]] [[return (std::uint64_t{1} << kEpochShift) +]]
  "sequence numbers of one freeze come again in the next")
hvd_sim_mutant(begins_after_stop engine/tensor_table.cpp
  [[stopped_ = true;]] [[stopped_ = false;]]
  "a rank that was told to stop begins another turn")
hvd_sim_mutant(furthest_for_least engine/tensor_table.cpp
  [[if (of_this && !std::all_of(]] [[if (of_this && !std::any_of(]]
  "a turn that one member has begun counts as begun by all")
hvd_sim_mutant(shutdown_while_frozen policy/protocol.cpp
  [[if (mode_ == Mode::frozen) begin_thaw(now);
  if (mode_ != Mode::negotiating]] [[if (mode_ != Mode::negotiating]]
  "a request to shut down does not end a frozen schedule")
hvd_sim_mutant(duplicates_pass engine/tensor_table.cpp
  [[if (insert(tensors[i])) continue;]]
  [[pending_.erase(view_of(request));
    if (insert(tensors[i])) continue;]]
  "a name may be pending twice")
hvd_sim_mutant(held_back_unnoticed policy/replay.cpp
  [[++waiting_;]] [[waiting_ += 0;]]
  "nobody notices what an incomplete collective holds up")
hvd_sim_mutant(victim_named policy/fault_detector.cpp
  [[now - best_->since < best_->wait]] [[false]]
  "the first suspicion is believed at once")
hvd_sim_mutant(shutdown_without_one policy/negotiator.cpp
  [[return std::ssize(departed_) == size_ &&]] [[return std::ssize(departed_) >= size_ - 1 &&]]
  "the shutdown is acknowledged before the last rank has requested it")
hvd_sim_mutant(set_removed_early policy/negotiator.cpp
  [[removed_.insert(id);]] [[sets_.erase(id);]]
  "a removed set is forgotten while tensors of it are ready")
hvd_sim_mutant(sets_not_in_flight policy/protocol.cpp
  [[if (leads() && runs) ++in_flight_;]] [[if (leads() && std::holds_alternative<FusedBatch>(decision)) ++in_flight_;]]
  "what the executor says is done was never counted")
hvd_sim_mutant(running_is_pending engine/tensor_table.cpp
  [[return at == pending_.end() || at->second->scheduled ? nullptr : at->second;]]
  [[return at == pending_.end() ? nullptr : at->second;]]
  "an operation that runs is taken for the next of its name")
hvd_sim_mutant(divided_group_forgotten policy/protocol.cpp
  [[learner_.thawed(cycles, finished);
  recall_groups();]] [[learner_.thawed(cycles, finished);]]
  "the rest of a group that was divided by a thaw waits for ever")
hvd_sim_mutant(freeze_remembers policy/protocol.cpp
  [[negotiator_.forget_pending();]] [[]]
  "announcements from before a freeze count after it")
hvd_sim_mutant(thaw_too_early policy/protocol.cpp
  [[if (++reports_ == reported_.size())]] [[if (++reports_ == 1)]]
  "a thaw does not wait for every rank's report")
hvd_sim_mutant(others_splits policy/protocol.cpp
  [[of_member.at(member)]] [[of_member.front()]]
  "every rank receives the first member's part of an alltoall")
hvd_sim_mutant(results_unseen engine/tensor_table.cpp
  [[if (observed != observed_) ++segment_;]] [[]]
  "tensors that wait for each other's results share a bucket")
hvd_sim_mutant(departed_keep_waiting policy/negotiator.cpp
  [[for (const OperationKey& key : keys) reject_departed(key);]] [[]]
  "what waits for a rank that has left waits for ever")
hvd_sim_mutant(waiting_rank_blamed policy/protocol.cpp
  [[stall.missing.empty() ? -1 : stall.missing.front()]] [[stall.submitted.front()]]
  "a stall is blamed on a rank that waits")

# Of who is silent: a rank, or its host.
hvd_sim_mutant(silent_host_is_frozen policy/fault_detector.cpp
  [[const bool host_answers = now - peer.answered <= longest_gap();]] [[const bool host_answers = true;]]
  "a rank whose host is silent is given up like one that is stopped")
hvd_sim_mutant(outage_not_credited policy/fault_detector.cpp
  [[of.overdue = at + outage;]] [[of.overdue = at;]]
  "a rank is given up before TCP has sent again what an outage held up")
hvd_sim_mutant(frozen_waits_for_host policy/fault_detector.cpp
  [[const bool frozen = host_answers && now - peer.overdue >= settings_.peer_timeout;]]
  [[const bool frozen = false;]]
  "a stopped rank is waited for as long as a silent host")

# Of the control tree.
hvd_sim_mutant(members_blamed policy/protocol.cpp
  [[for (const int child : children_) (leads() ? detector_ : below_).watch(child, now);]]
  [[for (const int child : leads() ? followers() : children_) (leads() ? detector_ : below_).watch(child, now);]]
  "rank 0 waits for heartbeats of a relay's members")
hvd_sim_mutant(dead_member_vouched_for policy/protocol.cpp
  [[if (relays(peer) || (peer == settings_.rank && !leads())) {]]
  [[if (relays(peer)) return;
  if (peer == settings_.rank && !leads()) {]]
  "a relay vouches for a member that is lost")
hvd_sim_mutant(silent_member_vouched_for policy/protocol.cpp
  [[judge_below(now);
  judge(now);]] [[judge(now);]]
  "a relay vouches for a member that says nothing")
hvd_sim_mutant(relay_judges policy/protocol.cpp
  [[if (relays(peer) || (peer == settings_.rank && !leads())) {]]
  [[if (peer == settings_.rank && !leads()) {]]
  "a relay gives its own verdict about a member")
hvd_sim_mutant(relay_blamed_for_member policy/protocol.cpp
  [[accuse(message.rank, message.cause, now);]] [[accuse(teller, message.cause, now);]]
  "rank 0 blames the relay that tells of a loss")
hvd_sim_mutant(members_not_told policy/protocol.cpp
  [[if (!leads()) return children_;]] [[if (!leads()) return {};]]
  "a relay keeps to itself that rank 0 is lost")
hvd_sim_mutant(no_parting_word policy/protocol.cpp
  [[if (!leads() && verdict->rank == parent_) {]] [[if (false) {]]
  "who gives its relay up leaves without a word")
hvd_sim_mutant(parting_word_believed policy/protocol.cpp
  [[if (const auto pause = detector_.stood_still(now)) {]]
  [[if (const auto pause = std::optional(Clock::duration(1))) {]]
  "a member that is cut off is believed that its relay stands still")
hvd_sim_mutant(own_pause_held_against_others policy/fault_detector.cpp
  [[since = std::min(since + late, now);]] [[since = std::min(since, now);]]
  "a rank that was stopped blames the others for it")
hvd_sim_mutant(combining_overtakes net/control_router.cpp
  [[std::uint64_t number = std::max(popped_, behind);]] [[std::uint64_t number = popped_;]]
  "a message joins an equal one that its sender has sent before")
hvd_sim_mutant(last_member_of_nobody policy/protocol.cpp
  [[message.rank < routes_.end_of(teller)]] [[message.rank < std::max(teller + 1, routes_.end_of(teller) - 1)]]
  "a relay may not speak of the last of its members")
hvd_sim_mutant(verdict_not_passed_on policy/protocol.cpp
  [[if (from.front() != 0 && !children_.empty()) actions_.send(children_, message);]] [[]]
  "a relay keeps to itself what the relay above it says of rank 0")
hvd_sim_mutant(two_levels_only net/control_router.cpp
  [[return actions_.write(routes_.parent(rank_), ranks, message);]]
  [[if (routes_.parent(rank_) == 0) actions_.write(0, ranks, message);
    return;]]
  "a relay below another passes nothing on to rank 0")

# Of elastic jobs.
hvd_sim_mutant(stragglers_ignored policy/membership.cpp
  [[if (count(State::member) > 0) return;]] [[]]
  "a generation forms while members of the last one are in motion" --elastic)
hvd_sim_mutant(crossed_waits_count policy/membership.cpp
  [[const bool crossed = self.state == State::member && waits.generation < self.assigned;]] [[const bool crossed = false;]]
  "a message of an earlier generation counts" --elastic)
hvd_sim_mutant(youngest_leads policy/membership.cpp
  [[std::stable_partition(ranks.begin(), ranks.end(), leads);]]
  [[std::reverse(ranks.begin(), ranks.end());]]
  "the youngest worker becomes rank 0" --elastic)
hvd_sim_mutant(silent_never_killed policy/membership.cpp
  [[if (in_motion(other) && !other.killed_at && !is_blamed)]] [[if (false)]]
  "a frozen worker is not killed when it is blamed" --elastic)
hvd_sim_mutant(nearest_is_source policy/recovery.cpp
  [[return std::pair(one.steps, one.iterations) > std::pair(best.steps, best.iterations);]]
  [[return std::pair(one.steps, one.iterations) < std::pair(best.steps, best.iterations);]]
  "the rank that is behind gives its state to the others" --elastic)
hvd_sim_mutant(damaged_is_sound policy/recovery.cpp
  [[standings, [](const Standing& one) { return one.is_sound(); },]]
  [[standings, [](const Standing& one) { return one.certain != 0; },]]
  "a rank that was receiving gives its state to the others" --elastic)
hvd_sim_mutant(first_commit_counts policy/recovery.cpp
  [[return one.commits > best.commits;]] [[return one.commits < best.commits;]]
  "training goes back further than to the last commit" --elastic)
hvd_sim_mutant(unblamed_never_killed policy/membership.cpp
  [[worker.killed_at.value_or(breaking_since_ + options_.timeout)]]
  [[worker.killed_at.value_or(now + options_.timeout)]]
  "a frozen worker whom nobody blames is awaited for ever" --elastic)
hvd_sim_mutant(newcomers_lead policy/membership.cpp
  [[return worker.has_state || (!trained_ && worker.was_member);]] [[return worker.was_member;]]
  "a worker that has never had the state may lead" --elastic)
hvd_sim_mutant(given_up_slots_stay policy/membership.cpp
  [[std::clamp(hosts_[host].slots - static_cast<int>(running), 0, slots)]] [[slots]]
  "a worker leaves for a slot that another has given up" --elastic)
hvd_sim_mutant(host_stays policy/membership.cpp
  [[host.leaves = static_cast<int>(others.size()) >= options_.min_np &&]] [[host.leaves = false &&]]
  "only a part of a host leaves that is about to be taken away" --elastic)
hvd_sim_mutant(first_loss_is_the_end policy/membership.cpp
  [[return worker.has_state || (!trained_ && worker.was_member);]] [[return worker.has_state;]]
  "a loss before anyone has trained ends the job" --elastic)
hvd_sim_mutant(hosts_interleave policy/membership.cpp
  [[return first[worker_at(a).host] < first[worker_at(b).host];]] [[return a < 0 && b < 0 && first.empty();]]
  "ranks of a host do not follow each other" --elastic)
hvd_sim_mutant(blamed_at_once policy/membership.cpp
  [[const auto patience = waits.blamed_left ? options_.leaving : options_.settle;]]
  [[const auto patience = std::chrono::milliseconds(0);]]
  "a worker that is blamed is killed before it can say that it waits" --elastic)
hvd_sim_mutant(fewer_than_the_least policy/membership.cpp
  [[const bool enough = static_cast<int>(ranks.size()) >= options_.min_np &&]]
  [[const bool enough = !ranks.empty() &&]]
  "a generation has fewer ranks than it needs" --elastic)
hvd_sim_mutant(iteration_done_again policy/recovery.cpp
  [[return std::pair(one.steps, one.iterations) > std::pair(best.steps, best.iterations);]]
  [[return one.steps > best.steps;]]
  "an iteration that a rank has ended is done again" --elastic)
hvd_sim_mutant(unsound_is_source policy/recovery.cpp
  [[standings, [](const Standing& one) { return one.is_sound(); },]]
  [[standings, [](const Standing& one) { return one.kind == Standing::whole; },]]
  "a rank whose parameters are those of no step gives them to the others" --elastic)
hvd_sim_mutant(mirrors_misplaced policy/recovery.cpp
  [[shard(has->rank - (is_mirror ? 1 : 0)) =]] [[shard(has->rank + (is_mirror ? 1 : 0)) =]]
  "a rank is taken for the mirror of the next one" --elastic)
hvd_sim_mutant(division_before_forgotten policy/recovery.cpp
  [[const std::int64_t before = newest_below(newest, all);]] [[const std::int64_t before = 0;]]
  "the shards are lost when a rank is lost before the first step of a division" --elastic)
hvd_sim_mutant(pending_step_not_made policy/recovery.cpp
  [[source.division_steps = std::max(source.division_steps, has->steps);]]
  [[source.division_steps = source.division_steps == 0 ? has->steps : std::min(source.division_steps, has->steps);]]
  "a step that a rank has made is not made by the others" --elastic)
hvd_sim_mutant(more_than_the_least policy/membership.cpp
  [[const bool enough = static_cast<int>(ranks.size()) >= options_.min_np &&]]
  [[const bool enough = static_cast<int>(ranks.size()) > options_.min_np &&]]
  "exactly as many workers as are needed wait for another until the job ends" --elastic)
hvd_sim_mutant(patience_not_renewed policy/membership.cpp
  [[too_few_since_.reset();]] [[]]
  "the time that a job may be without ranks goes on while it trains" --elastic)
hvd_sim_mutant(losses_count_as_stuck policy/membership.cpp
  [[if (enough && now >= deadline && generation_ > 0 && !explained_) {]]
  [[if (enough && now >= deadline && generation_ > 0) {]]
  "a job ends as one whose starts fail, although a loss explains the last one" --elastic)
hvd_sim_mutant(last_failure_counts policy/membership.cpp
  [[if (code_ == 0 && before == State::member) code_ = code;]] [[code_ = code;]]
  "after the end of the program a later exit code replaces that of the first failure" --elastic)
hvd_sim_mutant(cooldown_never_grows policy/membership.cpp
  [[long_ago ? options_.least_cooldown : std::min(2 * host.cooldown, options_.most_cooldown);]]
  [[options_.least_cooldown;]]
  "a host that fails again and again is tried again after the shortest time" --elastic)
hvd_sim_mutant(more_than_the_most policy/membership.cpp
  [[for (int k = 0; k < free && alive < options_.max_np; ++k, ++alive) {]]
  [[for (int k = 0; k < free; ++k, ++alive) {]]
  "more workers start than --max-np" --elastic)
