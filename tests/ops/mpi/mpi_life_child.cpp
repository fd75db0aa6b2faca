// A rank of mpi_life_test. It plays the scenario in argv[1] and prints the result.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <hvd/mpi.hpp>

#include "mpi/mpi_backend.hpp"
#include "mpi/mpi_transport.hpp"
#include "mpi_deaths.hpp"
#include "mpi_words.hpp"

namespace {

using hvd::test::DeathPoint;
using hvd::test::in;
using hvd::test::outcome;
using hvd::test::peers_end_at;
using hvd::test::say;
using std::chrono::milliseconds;
using std::chrono::seconds;

int rank() { return hvd::test::rank_of_world(); }

std::shared_ptr<const hvd::detail::MpiComm> duplicate_world() {
  const std::atomic<bool> never{false};
  hvd::detail::Watch watch(in(seconds(20)), never, "init", "MPI");
  return std::make_shared<const hvd::detail::MpiComm>(MPI_COMM_WORLD, watch);
}

std::unique_ptr<hvd::detail::MpiBackend> make_backend() {
  auto use = std::make_shared<hvd::detail::MpiUse>();
  return std::make_unique<hvd::detail::MpiBackend>(std::move(use), duplicate_world());
}

void twice() {
  for (int i = 0; i < 2; ++i) {
    const auto backend = make_backend();
    say(outcome([&] { backend->barrier(in(seconds(20))); }));
  }
}

/// Returns a place for a backend that lives longer than the exit handlers that the first use of MPI
/// registers.
std::unique_ptr<hvd::detail::MpiBackend>& kept() {
  static std::unique_ptr<hvd::detail::MpiBackend> backend;
  return backend;
}

void keep_until_exit() {
  auto& backend = kept();  // first, so that it is destroyed last
  backend = make_backend();
  say(outcome([] { kept()->barrier(in(seconds(20))); }));
}

/// hvd initialises an MPI that offers too little, and is asked again.
void too_few_threads() {
  ::setenv("HVD_TEST_PMPI_FUNNELED", "1", 1);
  const std::string first = outcome([] { static_cast<void>(make_backend()); });
  say(first);
  say("again " + outcome([] { static_cast<void>(make_backend()); }));
}

/// Rank 1 comes to no barrier before rank 0 has given up. Both end without MPI_Finalize.
void timeout() {
  const auto backend = make_backend();
  if (rank() == 0) {
    say(outcome([&] { backend->barrier(in(milliseconds(100))); }));
    say("again " + outcome([&] { backend->barrier(in(seconds(20))); }));
    say("new " + outcome([] { static_cast<void>(make_backend()); }));
  }
}

/// The buffer of the last MPI_Irecv.
std::atomic<const void*> received_into{nullptr};

/// Tells whether memory belongs to the stack of this thread.
bool is_on_the_stack(const void* memory) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return true;
  void* lowest = nullptr;
  std::size_t size = 0;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(lowest) < size;
}

/// Tests the same for a call that MPI itself could not give up. Rank 1 could still send what rank 0
/// has waited for, so the buffer has to outlive the call.
void lonely_subset() {
  const auto backend = make_backend();
  if (rank() == 0) {
    const std::vector<int> both{0, 1};
    say(outcome([&] { static_cast<void>(backend->subset(both, in(milliseconds(100)))); }));
    say(std::string("MPI may write to ") + (received_into == nullptr ? "nothing"
                                            : is_on_the_stack(received_into)
                                                ? "a frame that has ended"
                                                : "memory that stays"));
    say("whole " + outcome([&] { backend->barrier(in(seconds(20))); }));
  }
}

void abort_from_another_thread() {
  const auto backend = make_backend();
  if (rank() == 0) {
    std::thread aborter([&] { backend->abort(); });
    say(outcome([&] { backend->barrier(in(seconds(20))); }));
    aborter.join();
  }
}

std::unique_ptr<hvd::detail::MpiTransport> make_transport() {
  auto use = std::make_shared<hvd::detail::MpiUse>();
  return std::make_unique<hvd::detail::MpiTransport>(std::move(use), duplicate_world());
}

void await_message(hvd::Transport& transport, hvd::Deadline deadline) {
  std::byte byte{};
  transport.exchange({}, {.peer = 1, .size = 1, .into = &byte, .sink = {}}, deadline);
}

/// Rank 1 sends nothing, and receives nothing beyond what buffers on the way hold.
void message_timeout(std::size_t sent) {
  const auto transport = make_transport();
  if (rank() != 0) return;
  const std::vector<std::byte> bytes(sent);
  say(outcome([&] {
    if (sent == 0) {
      await_message(*transport, in(milliseconds(100)));
    } else {
      transport->exchange({.peer = 1, .bytes = bytes}, {}, in(milliseconds(100)));
    }
  }));
  say("again " + outcome([&] { await_message(*transport, in(seconds(20))); }));
  say("new " + outcome([] { static_cast<void>(make_transport()); }));
}

void message_abort(bool before) {
  const auto transport = make_transport();
  if (rank() != 0) return;
  std::thread aborter([&] { transport->abort(); });
  if (before) aborter.join();
  say(outcome([&] { await_message(*transport, in(seconds(20))); }));
  if (!before) aborter.join();
  say("again " + outcome([&] { await_message(*transport, in(seconds(20))); }));
}

/// MPI_Isend returns this error at once; with MPI_SUCCESS it calls libmpi's function.
std::atomic<int> sending_fails_with{MPI_SUCCESS};

/// MPI reports that rank 1 cannot be reached, while nothing has come from rank 2.
void message_unsent() {
  const auto transport = make_transport();
  if (rank() != 0) return;
  sending_fails_with = MPI_ERR_OTHER;
  std::byte byte{};
  say(outcome([&] {
    transport->exchange({.peer = 1, .bytes = {&byte, 1}},
                        {.peer = 2, .size = 1, .into = &byte, .sink = {}}, in(seconds(20)));
  }));
}

/// MPI's collectives and its messages are used in turn, and rank 1 sends none.
void message_timeout_among_collectives() {
  const auto use = std::make_shared<hvd::detail::MpiUse>();
  const auto comm = duplicate_world();
  hvd::detail::MpiBackend backend(use, comm);
  hvd::detail::MpiTransport transport(use, comm);
  const auto alone = backend.subset(std::vector<int>{rank()}, in(seconds(20)));
  if (rank() != 0) return;
  say(outcome([&] { await_message(transport, in(milliseconds(100))); }));
  say("whole " + outcome([&] { backend.barrier(in(seconds(20))); }));
  say("subset " + outcome([&] { alone->barrier(in(seconds(20))); }));
}

/// The sink throws half way, like a reduction that cannot continue.
void message_interrupted() {
  const auto transport = make_transport();
  std::vector<std::byte> bytes(std::size_t{4} << 20);
  if (rank() == 1) {
    say(outcome([&] { transport->exchange({.peer = 0, .bytes = bytes}, {}, in(seconds(2))); }));
    return;
  }
  const auto interrupt = [](std::size_t offset, std::span<const std::byte>) {
    if (offset > 0) throw hvd::Error(hvd::Errc::resource, "full");
  };
  say(outcome([&] {
    transport->exchange({}, {.peer = 1, .size = bytes.size(), .into = nullptr, .sink = interrupt},
                        in(seconds(20)));
  }));
}

/// Does not use mpirun's variables for rank, size and store.
hvd::Config mpi_config() {
  hvd::Config config = hvd::Config::from_environment();
  config.backend = "mpi";
  config.start_timeout = seconds(20);
  config.collective_timeout = seconds(20);
  config.shutdown_timeout = seconds(20);
  return config;
}

/// Calls hvd::init with a communicator in a program whose MPI has this thread level.
void communicator_at(int level) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, level, &provided);
  say(outcome([] {
    hvd::init(MPI_COMM_WORLD, mpi_config());
    std::vector<float> data(1000, 1.0F);
    hvd::allreduce(std::span<float>(data), {.op = hvd::ReduceOp::sum});
    say("sum " + std::to_string(static_cast<int>(data[999])));
    hvd::shutdown();
  }));
  // The program continues to compute.
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  say("own " + std::to_string(sum));
  MPI_Finalize();
  std::puts(("after " + outcome([] { hvd::init(MPI_COMM_WORLD, mpi_config()); })).c_str());
}

void print_plan() {
  hvd::Config config = mpi_config();
  config.log_level = hvd::LogLevel::plan;
  hvd::init(MPI_COMM_WORLD, config);
  hvd::shutdown();
}

/// Only the main thread may call this MPI.
void communicator_in_another_thread() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  std::string result;
  std::thread([&] { result = outcome([] { hvd::init(MPI_COMM_WORLD, mpi_config()); }); }).join();
  say(result);
  MPI_Finalize();
}

/// hvd initialises MPI once for two contexts.
void communicator_twice() {
  for (int i = 0; i < 2; ++i) {
    say(outcome([] {
      hvd::init(MPI_COMM_WORLD, mpi_config());
      hvd::barrier();
      hvd::shutdown();
    }));
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE) say("the program may not call MPI beside hvd");
  }
}

/// Rank 1 never comes to init.
void communicator_incomplete() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (rank() != 0) return;
  hvd::Config config = mpi_config();
  config.start_timeout = milliseconds(200);
  say(outcome([&] { hvd::init(MPI_COMM_WORLD, config); }));
}

/// Rank 1 dies or freezes in the middle of an endless training.
void peer_ends_by(int signal_number) {
  hvd::init(MPI_COMM_WORLD, mpi_config());
  const bool ends = rank() == 1;
  std::vector<std::int64_t> pid{ends ? ::getpid() : 0};
  hvd::allreduce(std::span<std::int64_t>(pid), {.op = hvd::ReduceOp::sum});
  std::vector<float> data(300'000, 1.0F);
  // Rank 0 may still be in a call that rank 1 has completed.
  say(outcome([&] {
    for (int call = 0;; ++call) {
      if (ends && call == 20) ::raise(signal_number);
      hvd::allreduce(std::span<float>(data));
    }
  }));
  // mpirun waits for frozen ranks too.
  if (signal_number == SIGSTOP) ::kill(static_cast<pid_t>(pid[0]), SIGKILL);
}

void program_initialises(int level) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, level, &provided);
  say(outcome([] { make_backend()->barrier(in(seconds(20))); }));
  MPI_Finalize();
  std::puts(("after " + outcome([] { static_cast<void>(make_backend()); })).c_str());
}

}  // namespace

/// Replaces libmpi's function, and records the buffer.
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  received_into = data;
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

/// Replaces libmpi's function, and fails where a scenario wants it.
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (sending_fails_with != MPI_SUCCESS) return sending_fails_with;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> scenarios = {
      {"twice", twice},
      {"keep", keep_until_exit},
      {"too-few-threads", too_few_threads},
      {"timeout", timeout},
      {"subset", lonely_subset},
      {"abort", abort_from_another_thread},
      {"message-timeout", [] { message_timeout(0); }},
      {"message-large-timeout", [] { message_timeout(std::size_t{64} << 20); }},
      {"message-unsent", message_unsent},
      {"message-timeout-among-collectives", message_timeout_among_collectives},
      {"message-abort", [] { message_abort(false); }},
      {"message-abort-before", [] { message_abort(true); }},
      {"message-interrupted", message_interrupted},
      {"comm-single", [] { communicator_at(MPI_THREAD_SINGLE); }},
      {"comm-funneled", [] { communicator_at(MPI_THREAD_FUNNELED); }},
      {"comm-serialized", [] { communicator_at(MPI_THREAD_SERIALIZED); }},
      {"comm-multiple", [] { communicator_at(MPI_THREAD_MULTIPLE); }},
      {"comm-thread", communicator_in_another_thread},
      {"comm-plan", print_plan},
      {"comm-twice", communicator_twice},
      {"comm-incomplete", communicator_incomplete},
      {"peer-killed", [] { peer_ends_by(SIGKILL); }},
      {"peer-stopped", [] { peer_ends_by(SIGSTOP); }},
      {"arriving-killed", [] { peers_end_at(DeathPoint::arriving, SIGKILL); }},
      {"arriving-stopped", [] { peers_end_at(DeathPoint::arriving, SIGSTOP); }},
      {"waiting-killed", [] { peers_end_at(DeathPoint::waiting, SIGKILL); }},
      {"waiting-stopped", [] { peers_end_at(DeathPoint::waiting, SIGSTOP); }},
      {"messages-killed", [] { peers_end_at(DeathPoint::messages, SIGKILL); }},
      {"messages-stopped", [] { peers_end_at(DeathPoint::messages, SIGSTOP); }},
      {"carrying-killed", [] { peers_end_at(DeathPoint::carrying, SIGKILL); }},
      {"carrying-stopped", [] { peers_end_at(DeathPoint::carrying, SIGSTOP); }},
      {"program-funneled", [] { program_initialises(MPI_THREAD_FUNNELED); }},
      {"program-multiple", [] { program_initialises(MPI_THREAD_MULTIPLE); }},
  };
  const auto found = argc == 2 ? scenarios.find(argv[1]) : scenarios.end();
  if (found == scenarios.end()) return 64;
  found->second();
  return 0;
}
