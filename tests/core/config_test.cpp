#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hvd/core/error.hpp>

#include "parse.hpp"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using test::complaint;
using test::parse;
using test::Variables;
using testing::HasSubstr;

Variables job(const Variables& more = {}) {
  Variables all = {{"HVD_RANK", "2"}, {"HVD_SIZE", "4"}, {"HVD_STORE", "unix:@s"}};
  for (const auto& [name, value] : more) all[name] = value;
  return all;
}

TEST(ConfigTest, NothingSetIsOneProcess) {
  const Config config = parse({});
  EXPECT_EQ(config.rank, 0);
  EXPECT_EQ(config.size, 1);
  EXPECT_EQ(config.rendezvous, Rendezvous::none);
  EXPECT_EQ(config.local_rank, -1);
  EXPECT_EQ(config.job_id, "local");
  EXPECT_EQ(config.backend, "auto");
  EXPECT_EQ(config.fusion_threshold, std::size_t{16} << 20);
}

TEST(ConfigTest, TheStatusSocketIsHvdruns) {
  EXPECT_EQ(parse({}).status_fd, -1);
  EXPECT_EQ(parse(job({{"HVD_STATUS_FD", "7"}})).status_fd, 7);
  EXPECT_EQ(parse({{"HVD_STATUS_FD", "7"}}).status_fd, -1);
  EXPECT_THAT(complaint(job({{"HVD_STATUS_FD", "x"}})), HasSubstr("HVD_STATUS_FD"));
}

TEST(ConfigTest, ReadsWhatHvdrunSets) {
  const Config config = parse({{"HVD_RANK", "3"},
                               {"HVD_SIZE", "8"},
                               {"HVD_LOCAL_RANK", "1"},
                               {"HVD_LOCAL_SIZE", "2"},
                               {"HVD_CROSS_RANK", "2"},
                               {"HVD_CROSS_SIZE", "4"},
                               {"HVD_JOB_ID", "job-7"},
                               {"HVD_RESTART_COUNT", "5"},
                               {"HVD_STORE", "tcp:[::1]:4000"},
                               {"HVD_SECRET_FD", "9"},
                               {"HVD_SECRET_FILE", "/run/secret"}});
  EXPECT_EQ(config.rank, 3);
  EXPECT_EQ(config.size, 8);
  EXPECT_EQ(config.local_rank, 1);
  EXPECT_EQ(config.local_size, 2);
  EXPECT_EQ(config.cross_rank, 2);
  EXPECT_EQ(config.cross_size, 4);
  EXPECT_EQ(config.job_id, "job-7");
  EXPECT_EQ(config.epoch, 5U);
  EXPECT_EQ(config.rendezvous, Rendezvous::store);
  EXPECT_EQ(config.store_address, "tcp:[::1]:4000");
  EXPECT_EQ(config.secret_fd, 9);
  EXPECT_EQ(config.secret_file, "/run/secret");
}

TEST(ConfigTest, PartsOfTheJobMayBeLeftOut) {
  const Config config = parse(job());
  EXPECT_EQ(config.local_rank, -1);
  EXPECT_EQ(config.local_size, -1);
  EXPECT_EQ(config.cross_rank, -1);
  EXPECT_EQ(config.cross_size, -1);
  EXPECT_EQ(config.secret_fd, -1);
}

TEST(ConfigTest, ReadsWhatMpirunSets) {
  const Config config = parse({{"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"PMIX_NAMESPACE", "1234.1"}});
  EXPECT_EQ(config.rank, 1);
  EXPECT_EQ(config.size, 2);
  EXPECT_EQ(config.local_rank, 1);
  EXPECT_EQ(config.local_size, 2);
  EXPECT_EQ(config.rendezvous, Rendezvous::pmix);
  EXPECT_EQ(config.job_id, "1234.1");
}

TEST(ConfigTest, OneRankUnderMpirunNeedsNoRendezvous) {
  const Config config = parse({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  EXPECT_EQ(config.rendezvous, Rendezvous::none);
}

TEST(ConfigTest, HvdIsBelievedBeforeMpirun) {
  const Config config = parse(job({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_EQ(config.rank, 2);
  EXPECT_EQ(config.size, 4);
  EXPECT_EQ(config.rendezvous, Rendezvous::store);
}

TEST(ConfigTest, HalfAPairNamesBothVariables) {
  EXPECT_THAT(complaint({{"HVD_RANK", "1"}}),
              testing::AllOf(HasSubstr("HVD_RANK is '1'"), HasSubstr("HVD_SIZE is not set")));
  EXPECT_THAT(complaint({{"HVD_SIZE", "4"}}), HasSubstr("HVD_RANK is not set"));
  EXPECT_THAT(complaint(job({{"HVD_LOCAL_RANK", "0"}})), HasSubstr("HVD_LOCAL_SIZE is not set"));
  EXPECT_THAT(complaint(job({{"HVD_CROSS_SIZE", "2"}})), HasSubstr("HVD_CROSS_RANK is not set"));
  EXPECT_THAT(complaint({{"OMPI_COMM_WORLD_SIZE", "2"}}),
              HasSubstr("OMPI_COMM_WORLD_RANK is not set"));
}

TEST(ConfigTest, ASizeAboveOneNeedsTheStore) {
  EXPECT_THAT(complaint({{"HVD_RANK", "0"}, {"HVD_SIZE", "2"}}), HasSubstr("HVD_STORE"));
  EXPECT_EQ(parse({{"HVD_RANK", "0"}, {"HVD_SIZE", "1"}}).rendezvous, Rendezvous::none);
  EXPECT_THAT(complaint(job({{"HVD_STORE", "somewhere"}})), HasSubstr("HVD_STORE is 'somewhere'"));
}

TEST(ConfigTest, RanksOutOfRangeAreNamed) {
  EXPECT_THAT(complaint(job({{"HVD_RANK", "4"}})), HasSubstr("HVD_RANK is '4'"));
  EXPECT_THAT(complaint(job({{"HVD_SIZE", "0"}})), HasSubstr("HVD_SIZE is '0'"));
  EXPECT_THAT(complaint(job({{"HVD_LOCAL_RANK", "2"}, {"HVD_LOCAL_SIZE", "2"}})),
              HasSubstr("HVD_LOCAL_RANK is '2'"));
  EXPECT_THAT(complaint(job({{"HVD_LOCAL_RANK", "2"}, {"HVD_LOCAL_SIZE", "5"}})),
              HasSubstr("HVD_LOCAL_SIZE is '5'"));
}

class ConfigNumberTest : public testing::TestWithParam<const char*> {};

TEST_P(ConfigNumberTest, WhatIsNoNumberIsQuoted) {
  const std::string text = GetParam();
  for (const char* name : {"HVD_RANK", "HVD_SIZE", "HVD_RESTART_COUNT", "HVD_SECRET_FD",
                           "HVD_FUSION_THRESHOLD", "HVD_START_TIMEOUT", "HVD_PEER_TIMEOUT_MS"}) {
    EXPECT_THAT(complaint(job({{name, text}})), HasSubstr(std::string(name) + " is '" + text + "'"))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Hostile, ConfigNumberTest,
                         testing::Values("", " ", "one", "-1", "1 ", " 1", "+1", "1x", "0x10",
                                         "99999999999999999999", "nan", "inf", "-0.5", "1,5"));

TEST(ConfigTest, SizesTakeSuffixes) {
  const auto threshold = [](const char* text) {
    return parse({{"HVD_FUSION_THRESHOLD", text}}).fusion_threshold;
  };
  EXPECT_EQ(threshold("0"), 0U);
  EXPECT_EQ(threshold("4194304"), 4194304U);
  EXPECT_EQ(threshold("64K"), 65536U);
  EXPECT_EQ(threshold("64m"), std::size_t{64} << 20);
  EXPECT_EQ(threshold("2G"), std::size_t{2} << 30);
  for (const char* bad : {"K", "64KB", "64 K", "1.5M", "8589934592G", "-1K"}) {
    EXPECT_THAT(complaint({{"HVD_FUSION_THRESHOLD", bad}}), HasSubstr("HVD_FUSION_THRESHOLD"))
        << bad;
  }
}

TEST(ConfigTest, CountsHaveTheirBounds) {
  const Config config =
      parse({{"HVD_TCP_STREAMS", "16"}, {"HVD_ARENA_SIZE", "1G"}, {"HVD_CONTROL_FANOUT", "2"}});
  EXPECT_EQ(config.tcp_streams, 16);
  EXPECT_EQ(config.arena_size, std::size_t{1} << 30);
  EXPECT_EQ(config.control_fanout, 2);
  EXPECT_THAT(complaint({{"HVD_TCP_STREAMS", "17"}}), HasSubstr("HVD_TCP_STREAMS is 17"));
  EXPECT_THAT(complaint({{"HVD_CONTROL_FANOUT", "1"}}), HasSubstr("HVD_CONTROL_FANOUT is 1"));
}

TEST(ConfigTest, MallocIsLeftToAUserWhoSetsItsThresholds) {
  EXPECT_TRUE(parse({}).tune_malloc);
  EXPECT_TRUE(parse({{"GLIBC_TUNABLES", "glibc.pthread.rseq=0"}}).tune_malloc);
  EXPECT_FALSE(parse({{"HVD_TUNE_MALLOC", "0"}}).tune_malloc);
  EXPECT_FALSE(parse({{"MALLOC_MMAP_THRESHOLD_", "65536"}}).tune_malloc);
  EXPECT_FALSE(parse({{"MALLOC_TRIM_THRESHOLD_", "65536"}}).tune_malloc);
  EXPECT_FALSE(parse({{"GLIBC_TUNABLES", "glibc.malloc.trim_threshold=9"}}).tune_malloc);
  EXPECT_TRUE(parse({{"MALLOC_TRIM_THRESHOLD_", "9"}, {"HVD_TUNE_MALLOC", "1"}}).tune_malloc);
}

TEST(ConfigTest, ReplicasAreComparedOnRequest) {
  EXPECT_EQ(parse({}).check_replicas_every, 0);
  EXPECT_EQ(parse({{"HVD_CHECK_REPLICAS_EVERY", "100"}}).check_replicas_every, 100);
  EXPECT_THAT(complaint({{"HVD_CHECK_REPLICAS_EVERY", "2000000000"}}),
              HasSubstr("HVD_CHECK_REPLICAS_EVERY is 2000000000"));
}

TEST(ConfigTest, StreamsWaitInsteadOfThreadsUnlessTheUserWantsOtherwise) {
  EXPECT_TRUE(parse({}).stream_ordered);
  EXPECT_FALSE(parse({{"HVD_STREAM_ORDERED", "0"}}).stream_ordered);
}

TEST(ConfigTest, DurationsHaveTheirUnits) {
  const Config config = parse({{"HVD_START_TIMEOUT", "2.5"},
                               {"HVD_HEARTBEAT_INTERVAL_MS", "50"},
                               {"HVD_PEER_TIMEOUT_MS", "700"},
                               {"HVD_HOST_TIMEOUT_S", "2.5"},
                               {"HVD_COLLECTIVE_TIMEOUT_S", "9"},
                               {"HVD_STALL_WARN_S", "0"},
                               {"HVD_STALL_ABORT_S", "0.25"},
                               {"HVD_SHUTDOWN_TIMEOUT_S", "4"}});
  EXPECT_EQ(config.start_timeout, milliseconds{2500});
  EXPECT_EQ(config.heartbeat_interval, milliseconds{50});
  EXPECT_EQ(config.peer_timeout, milliseconds{700});
  EXPECT_EQ(config.host_timeout, milliseconds{2500});
  EXPECT_EQ(config.collective_timeout, milliseconds{9000});
  EXPECT_EQ(config.stall_warn, milliseconds{0});
  EXPECT_EQ(config.stall_abort, milliseconds{250});
  EXPECT_EQ(config.shutdown_timeout, milliseconds{4000});
}

TEST(ConfigTest, DurationsThatCannotWorkAreRefused) {
  for (const char* bad : {"0", "-1", "1e300", "0.0001"}) {
    EXPECT_THAT(complaint({{"HVD_START_TIMEOUT", bad}}), HasSubstr("HVD_START_TIMEOUT")) << bad;
  }
  EXPECT_THAT(complaint({{"HVD_PEER_TIMEOUT_MS", "200"}, {"HVD_HEARTBEAT_INTERVAL_MS", "200"}}),
              HasSubstr("HVD_PEER_TIMEOUT_MS is 200"));
  for (const char* bad : {"1.9", "0", "-3", "x", ""}) {
    EXPECT_THAT(complaint({{"HVD_HOST_TIMEOUT_S", bad}}), HasSubstr("HVD_HOST_TIMEOUT_S is '"))
        << bad;
  }
}

TEST(ConfigTest, WordsAreChecked) {
  const Config config = parse({{"HVD_LOG", "plan"},
                               {"HVD_BACKEND", "mpi"},
                               {"HVD_TRANSPORT", "tcp"},
                               {"HVD_NETWORK_INTERFACES", "eth0,10.0.0.0/8"}});
  EXPECT_EQ(config.log_level, LogLevel::plan);
  EXPECT_EQ(config.backend, "mpi");
  EXPECT_EQ(config.transport, "tcp");
  EXPECT_EQ(config.interfaces, "eth0,10.0.0.0/8");
  EXPECT_THAT(complaint({{"HVD_LOG", "loud"}}),
              testing::AllOf(HasSubstr("HVD_LOG is 'loud'"), HasSubstr("plan")));
  EXPECT_THAT(complaint({{"HVD_BACKEND", "gloo"}}), HasSubstr("HVD_BACKEND is 'gloo'"));
  EXPECT_THAT(complaint({{"HVD_TRANSPORT", ""}}), HasSubstr("HVD_TRANSPORT is ''"));
  EXPECT_THAT(complaint(job({{"HVD_JOB_ID", "two words"}})), HasSubstr("HVD_JOB_ID"));
  EXPECT_THAT(complaint(job({{"HVD_JOB_ID", std::string(129, 'j')}})), HasSubstr("HVD_JOB_ID"));
}

TEST(ConfigTest, AutotuningIsOffUnlessAskedFor) {
  EXPECT_FALSE(parse({}).autotune);
  const Config config = parse(
      {{"HVD_AUTOTUNE", "1"}, {"HVD_AUTOTUNE_LOG", "a/b.csv"}, {"HVD_AUTOTUNE_CYCLES", "25"}});
  EXPECT_TRUE(config.autotune);
  EXPECT_EQ(config.autotune_log, "a/b.csv");
  EXPECT_EQ(config.autotune_cycles, 25);
  EXPECT_FALSE(parse({{"HVD_AUTOTUNE", "0"}}).autotune);
  for (const char* bad : {"", "yes", "2", "-1"}) {
    EXPECT_THAT(complaint({{"HVD_AUTOTUNE", bad}}), HasSubstr("HVD_AUTOTUNE is '")) << bad;
  }
  for (const char* bad : {"0", "10001", "", "x"}) {
    EXPECT_THAT(complaint({{"HVD_AUTOTUNE_CYCLES", bad}}), HasSubstr("HVD_AUTOTUNE_CYCLES is "));
  }
}

TEST(ConfigTest, HorovodsNamesWorkWhereTheyMeanTheSame) {
  const Config config = parse({{"HOROVOD_FUSION_THRESHOLD", "1048576"},
                               {"HOROVOD_TIMELINE", "t.json"},
                               {"HOROVOD_AUTOTUNE", "1"},
                               {"HOROVOD_AUTOTUNE_LOG", "a.csv"},
                               {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "7"},
                               {"HOROVOD_STALL_CHECK_TIME_SECONDS", "5"},
                               {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "9"},
                               {"HOROVOD_START_TIMEOUT", "11"},
                               {"HOROVOD_GLOO_IFACE", "eth7"}});
  EXPECT_EQ(config.fusion_threshold, std::size_t{1} << 20);
  EXPECT_EQ(config.timeline, "t.json");
  EXPECT_TRUE(config.autotune);
  EXPECT_EQ(config.autotune_log, "a.csv");
  EXPECT_EQ(config.autotune_cycles, 7);
  EXPECT_EQ(config.stall_warn, milliseconds{5000});
  EXPECT_EQ(config.stall_abort, milliseconds{9000});
  EXPECT_EQ(config.start_timeout, milliseconds{11'000});
  EXPECT_EQ(config.interfaces, "eth7");
  EXPECT_EQ(parse({{"HOROVOD_TIMELINE", "DYNAMIC"}}).timeline, "");
  EXPECT_THAT(complaint({{"HOROVOD_FUSION_THRESHOLD", "lots"}}),
              HasSubstr("HOROVOD_FUSION_THRESHOLD is 'lots'"));
  EXPECT_THAT(complaint({{"HOROVOD_AUTOTUNE", "yes"}}), HasSubstr("HOROVOD_AUTOTUNE is 'yes'"));
}

TEST(ConfigTest, OurNamesWinOverHorovods) {
  const Config config = parse({{"HOROVOD_FUSION_THRESHOLD", "1"},
                               {"HVD_FUSION_THRESHOLD", "2"},
                               {"HOROVOD_TIMELINE", "theirs"},
                               {"HVD_TIMELINE", "DYNAMIC"},
                               {"HOROVOD_LOG_LEVEL", "trace"},
                               {"HVD_LOG", "error"},
                               {"HOROVOD_STALL_CHECK_DISABLE", "1"},
                               {"HVD_STALL_WARN_S", "3"},
                               {"HOROVOD_GLOO_IFACE", "eth7"},
                               {"HVD_NETWORK_INTERFACES", "eth0"}});
  EXPECT_EQ(config.fusion_threshold, 2U);
  EXPECT_EQ(config.timeline, "DYNAMIC");
  EXPECT_EQ(config.log_level, LogLevel::error);
  EXPECT_EQ(config.stall_warn, milliseconds{3000});
  EXPECT_EQ(config.stall_abort, milliseconds{0});
  EXPECT_EQ(config.interfaces, "eth0");
}

TEST(ConfigTest, HorovodsLogLevels) {
  const auto level = [](const char* word) {
    return parse({{"HOROVOD_LOG_LEVEL", word}}).log_level;
  };
  EXPECT_EQ(level("trace"), LogLevel::debug);
  EXPECT_EQ(level("INFO"), LogLevel::info);
  EXPECT_EQ(level("warning"), LogLevel::warn);
  EXPECT_EQ(level("fatal"), LogLevel::error);
  EXPECT_THAT(complaint({{"HOROVOD_LOG_LEVEL", "loud"}}), HasSubstr("HOROVOD_LOG_LEVEL is 'loud'"));
}

TEST(ConfigTest, TheEnvironmentItselfIsRead) { EXPECT_NO_THROW((void)Config::from_environment()); }

}  // namespace
}  // namespace hvd
