// Tests how a node learns about itself and the others: from options and from a platform's
// variables.
#include "node/node_options.hpp"

#include <algorithm>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_codes.hpp"
#include "cli/options.hpp"
#include "directory.hpp"
#include "plan/cpus.hpp"
#include "plan/devices.hpp"
#include "plan/platform_modelarts.hpp"
#include "plan/this_host.hpp"

namespace hvd::launcher {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

NodeConfig config(Words arguments, const Words& environment = {}, Words program = {"./train"}) {
  arguments.insert(arguments.end(), program.begin(), program.end());
  const Options options = parse_options(arguments, environment);
  EXPECT_TRUE(options.node.given());
  return config_of(options.node, environment, options.program);
}

std::string refusal(const Words& arguments, const Words& environment = {}) {
  try {
    (void)config(arguments, environment);
  } catch (const LaunchError& error) {
    EXPECT_EQ(error.code(), kExitUsage);
    return error.what();
  }
  return "accepted";
}

TEST(NodeOptionsTest, DashesAndUnderscoresAreTheSame) {
  for (const char separator : {'-', '_'}) {
    Words words = {"--nnodes",
                   "2",
                   "--node-rank=1",
                   "--nproc-per-node",
                   "4",
                   "--master-addr",
                   "10.0.0.1",
                   "--master-port",
                   "1234",
                   "--use-env"};
    for (std::string& word : words) {
      if (word.starts_with("--")) std::replace(word.begin() + 2, word.end(), '-', separator);
    }
    const NodeConfig got = config(words);
    EXPECT_EQ(got.nodes, 2);
    EXPECT_EQ(got.node_rank, 1);
    EXPECT_EQ(got.processes, 4);
    EXPECT_EQ(got.endpoint(), "10.0.0.1:1234");
    EXPECT_EQ(got.hosting, Hosting::no);
    EXPECT_FALSE(got.one_machine());
  }
}

TEST(NodeOptionsTest, TheRendezvousOptionsHaveTheirMeaning) {
  NodeConfig got =
      config({"--nnodes=2:2", "--rdzv-id=job7", "--rdzv-endpoint=[fd00::1]:999", "--node-rank=0"});
  EXPECT_EQ(got.endpoint(), "[fd00::1]:999");
  EXPECT_EQ(got.job, "job7");
  EXPECT_EQ(got.hosting, Hosting::yes);
  got = config({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0"});
  EXPECT_EQ(got.endpoint(), "node0:29400");
  EXPECT_EQ(got.node_rank, -1);
  EXPECT_EQ(got.hosting, Hosting::if_free);
  got = config({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf", "is_host=1,join_timeout=7"});
  EXPECT_EQ(got.node_rank, 0);
  EXPECT_EQ(got.hosting, Hosting::yes);
  EXPECT_EQ(got.join_timeout, std::chrono::seconds(7));
  EXPECT_TRUE(got.one_machine());
  got = config({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=is_host=0"});
  EXPECT_EQ(got.hosting, Hosting::no);
}

TEST(NodeOptionsTest, RanksCanBeCountedByCoresAndByGpus) {
  const Words none_visible = {"CUDA_VISIBLE_DEVICES="};
  EXPECT_EQ(config({"--nproc-per-node=cpu"}).processes, usable_cores());
  EXPECT_EQ(config({"--nproc-per-node=auto"}, none_visible).processes, usable_cores());
  EXPECT_THAT(refusal({"--nproc-per-node=gpu"}, none_visible), HasSubstr("there is no GPU"));
  const int gpus = count_gpus("/dev");
  if (gpus > 0) {
    EXPECT_EQ(config({"--nproc-per-node=gpu"}).processes, gpus);
    EXPECT_EQ(config({"--nproc_per_node=auto"}).processes, gpus);
  }
}

TEST(NodeOptionsTest, GpusAreThoseThatCudaLeavesVisible) {
  const Directory directory;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"}) {
    std::ofstream(directory.path() / name) << "";
  }
  const auto visible = [&](const std::string& list) {
    return count_visible_gpus({"CUDA_VISIBLE_DEVICES=" + list}, directory.path());
  };
  EXPECT_EQ(count_visible_gpus({}, directory.path()), 3);
  EXPECT_EQ(visible("0"), 1);
  EXPECT_EQ(visible("2, 0"), 2);
  EXPECT_EQ(visible("0,3,1"), 1);
  EXPECT_EQ(visible("1,-1,0"), 1);
  EXPECT_EQ(visible("GPU-5a,MIG-1,MIG-2,MIG-3"), 4);
  EXPECT_EQ(visible(""), 0);
  EXPECT_EQ(visible("NoDevFiles"), 0);
  EXPECT_EQ(count_visible_gpus({}, directory.path() / "missing"), 0);
  EXPECT_EQ(count_visible_gpus({"CUDA_VISIBLE_DEVICES=0"}, directory.path() / "missing"), 0);
}

TEST(NodeOptionsTest, WhatDoesNotFitIsRefusedByName) {
  EXPECT_THAT(refusal({"--nnodes=2"}), HasSubstr("--node-rank"));
  EXPECT_THAT(refusal({"--nnodes=2", "--node-rank=2"}), HasSubstr("less than --nnodes"));
  EXPECT_THAT(refusal({"--nnodes=1:4"}), HasSubstr("elastic"));
  EXPECT_THAT(refusal({"--nnodes=two"}), HasSubstr("--nnodes 'two'"));
  EXPECT_THAT(refusal({"--nproc-per-node=tpu"}), HasSubstr("--nproc-per-node 'tpu'"));
  EXPECT_THAT(refusal({"--master-addr=-oProxyCommand=x"}), HasSubstr("not a host name"));
  EXPECT_THAT(refusal({"--rdzv-endpoint=a:0"}), HasSubstr("expected a port"));
  EXPECT_THAT(refusal({"--rdzv-backend=etcd"}), HasSubstr("static and c10d"));
  EXPECT_THAT(refusal({"--rdzv-conf=store_type=file"}), HasSubstr("is_host"));
  EXPECT_THAT(refusal({"--rdzv-id=a b"}), HasSubstr("--rdzv-id"));
  EXPECT_THAT(refusal({"--rdzv-endpoint=a", "--master-port=5"}), HasSubstr("exclude"));
  EXPECT_THAT(refusal({"--nnodes=2", "-np", "4"}), HasSubstr("-np"));
  EXPECT_THAT(refusal({"--nnodes=2", "-H", "a:2"}), HasSubstr("--hosts"));
  EXPECT_THAT(refusal({"--platform=sagemaker"}), HasSubstr("modelarts"));
  EXPECT_THAT(refusal({"--init_method=tcp://a:5"}), HasSubstr("--platform modelarts"));
  EXPECT_THAT(
      refusal({"--nnodes=2", "--node-rank=1", "--rdzv-backend=c10d", "--rdzv-conf=is_host=1"}),
      HasSubstr("node 0 hosts"));
}

const Words kModelArtsVariables = {"VC_WORKER_HOSTS=job-0.svc,job-1.svc", "VC_TASK_INDEX=1",
                                   "MA_NUM_HOSTS=2", "MA_NUM_GPUS=8", "MA_JOB_DIR=/home/ma"};

TEST(ModelArtsTest, TheVariablesSayItAll) {
  const Words alone = {};
  const NodeConfig got = config(alone, kModelArtsVariables);
  EXPECT_EQ(got.address, "job-0.svc");
  EXPECT_EQ(got.node_rank, 1);
  EXPECT_EQ(got.nodes, 2);
  EXPECT_EQ(got.processes, 8);
  EXPECT_EQ(config({"--platform=modelarts"}, kModelArtsVariables).processes, 8);
}

TEST(ModelArtsTest, OptionsWinOverVariables) {
  const NodeConfig got =
      config({"--nproc_per_node=3", "--master_port=1", "--node_rank=0"}, kModelArtsVariables);
  EXPECT_EQ(got.processes, 3);
  EXPECT_EQ(got.node_rank, 0);
  EXPECT_EQ(got.endpoint(), "job-0.svc:1");
  const Options ordinary = parse_options({"-np", "2", "./train"}, kModelArtsVariables);
  EXPECT_FALSE(ordinary.node.given());
}

TEST(ModelArtsTest, WhatThePlatformAppendsCountsNodesAndUnknownArgumentsAreIgnored) {
  const Words program = {"./train",        "--data_url=s3://x",
                         "--rank",         "0",
                         "--init_method",  "tcp://10.0.0.9:6666",
                         "--rank",         "1",
                         "--world_size=4", "--odd"};
  const NodeConfig got = config({"--platform", "modelarts", "--nproc-per-node=2"}, {}, program);
  EXPECT_EQ(got.endpoint(), "10.0.0.9:6666");
  EXPECT_EQ(got.node_rank, 1);
  EXPECT_EQ(got.nodes, 4);
  const Words own = {"./train", "--rank", "high"};  // no --init_method: the program's business
  EXPECT_EQ(config({"--platform=modelarts"}, {}, own).nodes, 1);
  EXPECT_EQ(
      config({"--platform=modelarts", "--init_method=tcp://h:7", "--rank=2", "--world_size=3"})
          .endpoint(),
      "h:7");
}

TEST(ModelArtsTest, AVariableThatIsNoNumberIsNamed) {
  EXPECT_THAT(refusal({"--platform=modelarts"}, {"MA_NUM_GPUS=all"}),
              HasSubstr("MA_NUM_GPUS is 'all'"));
}

TEST(ModelArtsTest, ProgramsAreLookedForWhereThePlatformPutsThem) {
  const Words own = {"PATH=/usr/bin:/bin", "MA_JOB_DIR=/home/ma"};
  EXPECT_EQ(modelarts_program("sh", own), "sh");
  EXPECT_EQ(modelarts_program("train-it", own), "/home/ma/train-it");
  EXPECT_EQ(modelarts_program("./train", own), "./train");
}

TEST(ModelArtsTest, AProgramInTwoFoldersOfTheUserIsAmbiguous) {
  const Directory home;
  const auto first = home.path() / "a/train-it";
  const auto second = home.path() / "b/train-it";
  for (const auto& program : {first, second}) {
    std::filesystem::create_directory(program.parent_path());
    std::ofstream(program) << "";
  }
  const Words own = {"MA_JOB_DIR=" + home.path().string()};
  try {
    ADD_FAILURE() << modelarts_program("train-it", own);
  } catch (const LaunchError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr(first.string() + " and " + second.string() + " both exist"));
  }
}

}  // namespace
}  // namespace hvd::launcher
