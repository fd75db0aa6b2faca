// Tests which environment variables decide a rank: each row of the table, and nested launchers.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/slurm_step.hpp"
#include "parse.hpp"

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using test::complaint;
using test::parse;
using test::Variables;
using testing::AllOf;
using testing::HasSubstr;

Variables operator+(Variables first, const Variables& second) {
  for (const auto& [name, value] : second) first[name] = value;
  return first;
}

Variables without(Variables all, const std::string& name) {
  all.erase(name);
  return all;
}

// Each launcher gives another rank, so the test sees which one decided.

const Variables kHvd = {{"HVD_RANK", "1"}, {"HVD_SIZE", "20"}, {"HVD_STORE", "unix:@s"}};

const Variables kTorch = {{"RANK", "2"},
                          {"WORLD_SIZE", "20"},
                          {"LOCAL_RANK", "2"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node-a"},
                          {"MASTER_PORT", "29500"}};

const Variables kTorchrun = kTorch + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                               {"TORCHELASTIC_RUN_ID", "run 7"},
                                               {"TORCHELASTIC_RESTART_COUNT", "3"},
                                               {"TORCHELASTIC_ERROR_FILE", "/tmp/e.json"}};

const Variables kHorovod = {{"HOROVOD_RANK", "3"},
                            {"HOROVOD_SIZE", "4"},
                            {"HOROVOD_LOCAL_RANK", "3"},
                            {"HOROVOD_LOCAL_SIZE", "4"},
                            {"HOROVOD_CROSS_RANK", "0"},
                            {"HOROVOD_CROSS_SIZE", "1"},
                            {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                            {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4711"}};

const Variables kPmix = {{"PMIX_RANK", "4"}, {"PMIX_NAMESPACE", "slurm.pmix.9.0"}};

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "5"},
                            {"OMPI_COMM_WORLD_SIZE", "20"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};

const Variables kHydra = {{"PMI_RANK", "6"},
                          {"PMI_SIZE", "8"},
                          {"PMI_FD", "9"},
                          {"MPI_LOCALRANKID", "6"},
                          {"MPI_LOCALNRANKS", "8"}};

const Variables kSlurm = {{"SLURM_JOB_ID", "12"},
                          {"SLURM_STEP_ID", "1"},
                          {"SLURM_PROCID", "7"},
                          {"SLURM_STEP_NUM_TASKS", "10"},
                          {"SLURM_NTASKS", "10"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_NUM_NODES", "4"},
                          {"SLURM_STEP_TASKS_PER_NODE", "3(x2),2(x2)"},
                          {"SLURM_STEP_NODELIST", "n[08-10],m3"}};

Surroundings with_pmix(PmixRank found) {
  Surroundings ask;
  ask.pmix = [found] { return found; };
  return ask;
}

TEST(JobVariablesTest, EachRowComesBeforeTheNext) {
  const Surroundings ask = with_pmix({4, 20, 1, 2});
  Variables all = kHvd + kTorchrun + kHorovod + kPmix + kOpenMpi + kHydra + kSlurm;
  EXPECT_EQ(parse(all, ask).rank, 1);
  all.erase("HVD_RANK");
  all.erase("HVD_SIZE");
  EXPECT_EQ(parse(all, ask).rank, 2);
  all.erase("MASTER_ADDR");
  EXPECT_EQ(parse(all, ask).rank, 3);
  all.erase("HOROVOD_RANK");
  all.erase("HOROVOD_SIZE");
  EXPECT_EQ(parse(all, ask).rank, 4);
  all.erase("PMIX_RANK");
  EXPECT_EQ(parse(all, ask).rank, 5);
  all.erase("OMPI_COMM_WORLD_RANK");
  all.erase("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(parse(all, ask).rank, 6);
  all.erase("PMI_RANK");
  all.erase("PMI_SIZE");
  EXPECT_EQ(parse(all, ask).rank, 7);
  all.erase("SLURM_STEP_ID");
  all.erase("RANK");
  all.erase("WORLD_SIZE");
  EXPECT_EQ(parse(all, ask).size, 1);
}

TEST(JobVariablesTest, HalfAPairIsAnErrorInEveryRow) {
  EXPECT_THAT(complaint(without(kHvd, "HVD_SIZE")), HasSubstr("HVD_SIZE is not set"));
  EXPECT_THAT(complaint(without(kTorch, "RANK")),
              AllOf(HasSubstr("WORLD_SIZE is '20'"), HasSubstr("RANK is not set")));
  EXPECT_THAT(complaint(without(kTorch, "WORLD_SIZE")), HasSubstr("WORLD_SIZE is not set"));
  EXPECT_THAT(complaint(without(kTorch, "LOCAL_RANK")), HasSubstr("LOCAL_RANK is not set"));
  EXPECT_THAT(complaint(without(kTorch, "MASTER_PORT")), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(complaint(without(kTorch, "MASTER_ADDR")), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(complaint({{"WORLD_SIZE", "4"}}), HasSubstr("RANK is not set"));
  EXPECT_THAT(complaint(without(kHorovod, "HOROVOD_RANK")), HasSubstr("HOROVOD_RANK is not set"));
  EXPECT_THAT(complaint(without(kHorovod, "HOROVOD_CROSS_SIZE")), HasSubstr("HOROVOD_CROSS_SIZE"));
  EXPECT_THAT(complaint(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")),
              HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(complaint(without(kHydra, "PMI_SIZE")), HasSubstr("PMI_SIZE is not set"));
  EXPECT_THAT(complaint(without(kSlurm, "SLURM_PROCID")), HasSubstr("SLURM_PROCID is not set"));
  EXPECT_THAT(complaint(without(kSlurm, "SLURM_JOB_ID")), HasSubstr("SLURM_JOB_ID is not set"));
}

TEST(JobVariablesTest, ARankOutsideOfItsSizeIsAnErrorInEveryRow) {
  EXPECT_THAT(complaint(kTorch + Variables{{"RANK", "20"}}), HasSubstr("RANK is '20'"));
  EXPECT_THAT(complaint(kTorch + Variables{{"WORLD_SIZE", "0"}}), HasSubstr("WORLD_SIZE is '0'"));
  EXPECT_THAT(complaint(kHorovod + Variables{{"HOROVOD_RANK", "4"}}),
              HasSubstr("HOROVOD_RANK is '4'"));
  EXPECT_THAT(complaint(kOpenMpi + Variables{{"OMPI_COMM_WORLD_RANK", "20"}}),
              HasSubstr("OMPI_COMM_WORLD_RANK is '20'"));
  EXPECT_THAT(complaint(kHydra + Variables{{"PMI_RANK", "8"}}), HasSubstr("PMI_RANK is '8'"));
  EXPECT_THAT(complaint(kSlurm + Variables{{"SLURM_PROCID", "10"}}),
              HasSubstr("SLURM_PROCID is '10'"));
}

TEST(JobVariablesTest, WhatIsNoNumberIsQuotedInEveryRow) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_PORT", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"}) {
    EXPECT_THAT(complaint(kTorchrun + Variables{{name, "1x"}}),
                HasSubstr(std::string(name) + " is '1x'"));
  }
  EXPECT_THAT(complaint(kTorch + Variables{{"MASTER_PORT", "70000"}}), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(complaint(kTorch + Variables{{"MASTER_ADDR", "a b"}}),
              HasSubstr("MASTER_ADDR is 'a b'"));
  EXPECT_THAT(complaint(kHorovod + Variables{{"HOROVOD_SIZE", ""}}),
              HasSubstr("HOROVOD_SIZE is ''"));
  EXPECT_THAT(complaint(kOpenMpi + Variables{{"OMPI_COMM_WORLD_SIZE", "-1"}}),
              HasSubstr("OMPI_COMM_WORLD_SIZE is '-1'"));
  EXPECT_THAT(complaint(kPmix + Variables{{"PMIX_RANK", "x"}}), HasSubstr("PMIX_RANK is 'x'"));
  EXPECT_THAT(complaint(kHydra + Variables{{"PMI_RANK", "x"}}), HasSubstr("PMI_RANK is 'x'"));
  for (const char* name : {"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID",
                           "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_RESV_PORTS"}) {
    EXPECT_THAT(complaint(kSlurm + Variables{{name, "y"}}),
                HasSubstr(std::string(name) + " is 'y'"));
  }
}

TEST(JobVariablesTest, TorchrunOnSeveralHostsHasTheAgentsStore) {
  const Config config = parse(kTorchrun);
  EXPECT_EQ(config.rank, 2);
  EXPECT_EQ(config.size, 20);
  EXPECT_EQ(config.local_rank, 2);
  EXPECT_EQ(config.local_size, 4);
  EXPECT_EQ(config.epoch, 3U);
  EXPECT_EQ(config.job_id, "torch-29500-run_7");
  EXPECT_EQ(config.rendezvous, Rendezvous::agent);
  EXPECT_EQ(config.store_address, "tcp:node-a:29500");
  EXPECT_EQ(config.error_file, "/tmp/e.json");
}

TEST(JobVariablesTest, WithoutAnAgentsStoreRank0ServesAtTheMastersPort) {
  for (const Variables& variables :
       {kTorch, kTorchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "False"}}}) {
    const Config config = parse(variables + Variables{{"HVD_SECRET_FILE", "/s"}});
    EXPECT_EQ(config.rendezvous, Rendezvous::hosted);
    EXPECT_EQ(config.store_address, "tcp:node-a:29500");
    EXPECT_EQ(config.store_ports, 1);
    EXPECT_EQ(config.secret_file, "/s");
  }
}

TEST(JobVariablesTest, TorchrunOnOneHostNeedsNoPort) {
  const Config standalone = parse(kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "20"}});
  EXPECT_EQ(standalone.rendezvous, Rendezvous::hosted);
  EXPECT_EQ(standalone.store_address, "unix:@");
  for (const char* loopback : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    const Config config = parse(kTorchrun + Variables{{"MASTER_ADDR", loopback}});
    EXPECT_EQ(config.store_address, "unix:@") << loopback;
  }
}

TEST(JobVariablesTest, JobsOfTorchrunDifferByPortAndName) {
  const std::string first = parse(kTorchrun).job_id;
  EXPECT_NE(first, parse(kTorchrun + Variables{{"MASTER_PORT", "29501"}}).job_id);
  EXPECT_NE(first, parse(kTorchrun + Variables{{"TORCHELASTIC_RUN_ID", "run 8"}}).job_id);
  EXPECT_LE(
      parse(kTorchrun + Variables{{"TORCHELASTIC_RUN_ID", std::string(500, 'x')}}).job_id.size(),
      128U);
}

TEST(JobVariablesTest, TorchDoesWithoutLocalWorldSize) {
  const Config config = parse(without(kTorch, "LOCAL_WORLD_SIZE"));
  EXPECT_EQ(config.rank, 2);
  EXPECT_EQ(config.local_rank, -1);
  EXPECT_THAT(complaint(without(kTorch, "LOCAL_WORLD_SIZE") + Variables{{"LOCAL_RANK", "20"}}),
              HasSubstr("LOCAL_RANK is '20'"));
}

TEST(PlaceTest, AMasterAddressAloneIsNobodysPlace) {
  // A job script exports it for every rank, but srun started the ranks.
  const Config config =
      parse(kSlurm + Variables{{"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(config.rank, 7);
  EXPECT_EQ(config.rank_source, "SLURM_*");
}

TEST(JobVariablesTest, HorovodrunOnOneHost) {
  const Config config = parse(kHorovod);
  EXPECT_EQ(config.rank, 3);
  EXPECT_EQ(config.size, 4);
  EXPECT_EQ(config.local_rank, 3);
  EXPECT_EQ(config.cross_size, 1);
  EXPECT_EQ(config.rendezvous, Rendezvous::hosted);
  EXPECT_EQ(config.store_address, "unix:@");
  EXPECT_NE(config.job_id,
            parse(kHorovod + Variables{{"HOROVOD_GLOO_RENDEZVOUS_PORT", "4712"}}).job_id);
}

TEST(JobVariablesTest, HorovodrunOnSeveralHostsNeedsARendezvous) {
  const Variables several =
      kHorovod + Variables{{"HOROVOD_LOCAL_RANK", "1"}, {"HOROVOD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(parse(several).rendezvous, Rendezvous::none);
  const Config config = parse(several + Variables{{"HVD_RENDEZVOUS", "node-a:5000"}});
  EXPECT_EQ(config.rendezvous, Rendezvous::hosted);
  EXPECT_EQ(config.store_address, "tcp:node-a:5000");
}

TEST(JobVariablesTest, SlurmsPmixServerIsAsked) {
  const Config config = parse(kPmix + kSlurm, with_pmix({4, 20, 1, 2}));
  EXPECT_EQ(config.rank, 4);
  EXPECT_EQ(config.size, 20);
  EXPECT_EQ(config.local_rank, 1);
  EXPECT_EQ(config.local_size, 2);
  EXPECT_EQ(config.rendezvous, Rendezvous::pmix);
  EXPECT_EQ(config.job_id, "slurm.pmix.9.0");
}

TEST(JobVariablesTest, NoAnswerFromPmixMeansTheNextRow) {
  EXPECT_EQ(parse(kPmix + kSlurm).rank, 7);
  EXPECT_EQ(parse(kPmix).size, 1);
}

TEST(JobVariablesTest, NobodyIsAskedWithoutAVariableThatSaysSo) {
  Surroundings ask;
  ask.pmix = []() -> std::optional<PmixRank> {
    ADD_FAILURE() << "asked";
    return std::nullopt;
  };
  EXPECT_EQ(parse({}, ask).size, 1);
  EXPECT_EQ(parse(kSlurm, ask).rank, 7);
  // mpirun's variables and its server agree.
  const Config config =
      parse(kOpenMpi + Variables{{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "8.1"}}, ask);
  EXPECT_EQ(config.rank, 5);
  EXPECT_EQ(config.rendezvous, Rendezvous::pmix);
}

TEST(JobVariablesTest, HydraOnOneHostIsToldApartByItsProxy) {
  Surroundings ask;
  ask.peer_process = [](int fd) { return fd == 9 ? std::optional(4242) : std::nullopt; };
  const Config config = parse(kHydra, ask);
  EXPECT_EQ(config.rank, 6);
  EXPECT_EQ(config.local_size, 8);
  EXPECT_EQ(config.rendezvous, Rendezvous::hosted);
  EXPECT_EQ(config.store_address, "unix:@");
  EXPECT_EQ(config.job_id, "pmi-4242");
  EXPECT_EQ(parse(kHydra).rendezvous, Rendezvous::none);
}

TEST(JobVariablesTest, Pmi2UnderSlurmMeetsLikeAnyStep) {
  const Config config = parse(kSlurm + Variables{{"PMI_RANK", "7"}, {"PMI_SIZE", "10"}});
  EXPECT_EQ(config.rank_source, "PMI_*");
  EXPECT_EQ(config.local_size, 2);
  EXPECT_EQ(config.rendezvous, Rendezvous::hosted);
  EXPECT_EQ(config.store_address, parse(kSlurm).store_address);
}

TEST(JobVariablesTest, AStepOfSlurm) {
  const Config config = parse(kSlurm);
  EXPECT_EQ(config.rank, 7);
  EXPECT_EQ(config.size, 10);
  EXPECT_EQ(config.local_rank, 1);
  EXPECT_EQ(config.local_size, 2);
  EXPECT_EQ(config.job_id, "slurm-12.1");
  EXPECT_EQ(config.rendezvous, Rendezvous::hosted);
  EXPECT_THAT(config.store_address, testing::StartsWith("tcp:n08:2"));
  EXPECT_EQ(config.store_ports, 16);
  // Another step of the same job uses another address.
  EXPECT_NE(parse(kSlurm + Variables{{"SLURM_STEP_ID", "2"}}).store_address, config.store_address);
}

TEST(JobVariablesTest, AStepOnOneNodeNeedsNoPort) {
  const Config config = parse(kSlurm + Variables{{"SLURM_STEP_NUM_NODES", "1"},
                                                 {"SLURM_NODEID", "0"},
                                                 {"SLURM_STEP_TASKS_PER_NODE", "10"}});
  EXPECT_EQ(config.store_address, "unix:@");
  EXPECT_EQ(config.local_size, 10);
}

TEST(JobVariablesTest, PortsThatSlurmReservedAreUsed) {
  const Config config = parse(kSlurm + Variables{{"SLURM_STEP_RESV_PORTS", "12000-12003"}});
  EXPECT_EQ(config.store_address, "tcp:n08:12000");
  EXPECT_EQ(config.store_ports, 4);
}

TEST(JobVariablesTest, FirstNodes) {
  EXPECT_EQ(first_node_of("a"), "a");
  EXPECT_EQ(first_node_of("a,b"), "a");
  EXPECT_EQ(first_node_of("n[08-10,12],m"), "n08");
  EXPECT_EQ(first_node_of("n[3,5]-ib"), "n3-ib");
  EXPECT_EQ(first_node_of("r[1-2]n[3-4]"), "r1n3");
  EXPECT_EQ(first_node_of(""), "");
  EXPECT_EQ(first_node_of("n[1"), "");
}

// Tests of one launcher inside another.

TEST(NestedJobTest, ABatchScriptIsNoRank) {
  EXPECT_EQ(parse(without(kSlurm, "SLURM_STEP_ID")).size, 1);
}

TEST(NestedJobTest, NorIsTheShellOfAnAllocation) {
  // These are SLURM_BATCH_SCRIPT and SLURM_INTERACTIVE_STEP of slurm.h.
  for (const char* step : {"4294967291", "4294967290"}) {
    EXPECT_EQ(parse(kSlurm + Variables{{"SLURM_STEP_ID", step}}).size, 1) << step;
  }
}

TEST(NestedJobTest, MpirunInAnAllocationShowsItsDaemonsStep) {
  const Config config = parse(kSlurm + kOpenMpi);
  EXPECT_EQ(config.rank, 5);
  EXPECT_EQ(config.size, 20);
  EXPECT_EQ(config.local_size, 4);
}

TEST(NestedJobTest, MpirunInsideOfATaskOfSrun) {
  const Variables inner = {{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "1862074369"}};
  EXPECT_EQ(parse(kSlurm + kPmix + kOpenMpi + inner).rank, 5);
}

TEST(NestedPlaceTest, SrunWithPmixInsideOfARankOfMpirun) {
  // The outer mpirun's rank happens to equal the step's.
  const Variables outer = kOpenMpi + Variables{{"OMPI_COMM_WORLD_RANK", "4"}};
  EXPECT_EQ(parse(outer + kSlurm + kPmix, with_pmix({4, 6, 0, 6})).size, 6);
}

TEST(NestedJobTest, HydrasProxiesAreTasksOfSrunButItsRanksAreNot) {
  Surroundings ask;
  ask.peer_process = [](int) { return 1; };
  const Config config = parse(kSlurm + kHydra, ask);
  EXPECT_EQ(config.rank, 6);
  EXPECT_EQ(config.size, 8);
  EXPECT_EQ(config.job_id, "pmi-1");
}

TEST(NestedJobTest, TorchrunInsideOfMpirunOrSrun) {
  EXPECT_EQ(parse(kOpenMpi + kTorchrun).rank, 2);
  EXPECT_EQ(parse(kSlurm + kTorchrun).rank, 2);
}

TEST(NestedJobTest, HvdrunInsideOfTorchrun) {
  const Config config = parse(kTorchrun + kHvd + Variables{{"HVD_RENDEZVOUS", "a:1"}});
  EXPECT_EQ(config.rank, 1);
  EXPECT_EQ(config.store_address, "unix:@s");
}

// Tests of the address at which ranks meet, and of their secret.

TEST(RendezvousTest, AnAddressOfOnesOwn) {
  const Variables by_hand = {
      {"HVD_RANK", "0"}, {"HVD_SIZE", "2"}, {"HVD_RENDEZVOUS", "[fd00::1]:7000"}};
  const Config config = parse(by_hand);
  EXPECT_EQ(config.rendezvous, Rendezvous::hosted);
  EXPECT_EQ(config.store_address, "tcp:[fd00::1]:7000");
  EXPECT_EQ(parse(kSlurm + Variables{{"HVD_RENDEZVOUS", "a:1"}}).store_ports, 1);
  EXPECT_EQ(parse(kTorchrun + Variables{{"HVD_RENDEZVOUS", "a:1"}}).rendezvous, Rendezvous::hosted);
  for (const char* wrong : {"", "a", "a:", ":1", "a:x", "a:70000"}) {
    EXPECT_THAT(complaint(by_hand + Variables{{"HVD_RENDEZVOUS", wrong}}),
                HasSubstr("HVD_RENDEZVOUS is '"));
  }
}

TEST(RendezvousTest, SecretsAreReadInEveryRow) {
  EXPECT_EQ(parse(kSlurm + Variables{{"HVD_SECRET_FILE", "/s"}}).secret_file, "/s");
  EXPECT_TRUE(parse(kSlurm + Variables{{"HVD_INSECURE", "1"}}).insecure);
  EXPECT_FALSE(parse(kSlurm).insecure);
  EXPECT_THAT(complaint({{"HVD_INSECURE", "yes"}}), HasSubstr("HVD_INSECURE is 'yes'"));
}

}  // namespace
}  // namespace hvd
