#include "plan/cluster/plan_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/testing/temporary_folder.h"
#include "plan/cluster/fleet_csv.h"

namespace tessera::plan {
namespace {

const char* const kNodes = "sn,cpu_milli,memory_mib,gpu,model\n";
const char* const kPods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";

class PlanClusterTest : public testing::Test {
 protected:
  // Ten nodes of two GPUs; a third of the pods has whole GPUs, a third 600 of a thousand, a third 400.
  ClusterQuestion Small(const std::string& policy) const {
    std::string nodes = kNodes, pods = kPods;
    for (int i = 0; i < 10; ++i) nodes += "node-" + std::to_string(i) + ",24000,64000," + "2,T4\n";
    for (int i = 0; i < 30; ++i)
      pods += "pod-" + std::to_string(i) + ",4000,1000,1," + (i % 3 == 0 ? "1000" : i % 3 == 1 ? "600" : "400") + ",\n";
    return {.nodes = folder_.File("nodes.csv", nodes),
            .pods = folder_.File("pods.csv", pods),
            .policy = *sched::FleetPolicyOf(policy)};
  }

  const TemporaryFolder folder_;
};

TEST_F(PlanClusterTest, ReadsNodesAndPodsInAnyOrderOfColumns) {
  const auto nodes = ReadFleetNodes(
      folder_.File("n", "model,gpu,sn,memory_mib,cpu_milli\n,0,a,1024,8000\nT4,2,b,2048,16000\nG2,8,c,1,1\n"));
  ASSERT_TRUE(nodes) << nodes.error().Text();
  ASSERT_EQ(nodes->rooms.size(), 3u);
  EXPECT_EQ(nodes->gpus(), 10);
  EXPECT_EQ(nodes->rooms[1].cpu, 16'000);
  EXPECT_EQ(nodes->rooms[1].memory, 2048);
  EXPECT_EQ(nodes->models, (std::vector<std::string>{"T4", "G2"}));
  const auto pods =
      ReadFleetPods(folder_.File("p", std::string("qos,") + kPods +
                                          "LS,x,1000,2,1,470,G2|T4\nLS,y,1000,2,0,0,\nLS,z,1000,2,4,1000,G2|V100\n"),
                    *nodes);
  ASSERT_TRUE(pods) << pods.error().Text();
  EXPECT_EQ((*pods)[0], (sched::Demand{1000, 2, 1, 470, 0b11}));
  EXPECT_EQ((*pods)[1], (sched::Demand{1000, 2, 0, 0, 0}));
  EXPECT_EQ((*pods)[2], (sched::Demand{1000, 2, 4, 1000, 0b10})) << "no node has a V100, but some have a G2";
}

TEST_F(PlanClusterTest, SaysWhichLineIsWrong) {
  const auto nodes = ReadFleetNodes(folder_.File("n", std::string(kNodes) + "a,8000,1024,2,T4\n"));
  ASSERT_TRUE(nodes);
  struct Case {
    const char* row;
    int code;
    const char* says;
  };
  for (const Case& wrong : std::vector<Case>{
           {"b,-1,1,1,500,", ERANGE, "p:3: cpu_milli: \"-1\" is below 0"},
           {"b,1,-5,1,500,", ERANGE, "p:3: memory_mib: \"-5\" is below 0"},
           {"b,1,1,1,1001,", ERANGE, "p:3: gpu_milli: \"1001\" is above 1000"},
           {"b,1,1,17,1000,", ERANGE, "p:3: num_gpu: \"17\" is above 16"},
           {"b,1.5,1,1,500,", EINVAL, "p:3: cpu_milli: \"1.5\" is not a whole number"},
           {"b,x,1,1,500,", EINVAL, "p:3: cpu_milli: \"x\" is not a number"},
           {"b,1,1,0,500,", EINVAL, "p:3: gpu_milli is 500 where num_gpu is 0"},
           {"b,1,1,1,0,", EINVAL, "p:3: gpu_milli is 0 where num_gpu is 1"},
           {"b,1,1,2,500,", EINVAL, "p:3: gpu_milli is 500 where num_gpu is 2"},
           {"b,1,1,1,500,A100", EINVAL, "p:3: gpu_spec: no node has a GPU of type \"A100\""},
           {"a,1,1,1,500,", EINVAL, "p:3: \"a\" is there twice"},
           {",1,1,1,500,", EINVAL, "p:3: name is empty"},
           {"b,1,1,1", EINVAL, "p:3: 4 fields where the first line names 6 columns"},
       }) {
    const auto pods =
        ReadFleetPods(folder_.File("p", std::string(kPods) + "a,1,1,1,500,\n" + wrong.row + "\n"), *nodes);
    ASSERT_FALSE(pods) << wrong.row;
    EXPECT_EQ(pods.error().code, wrong.code) << wrong.row;
    EXPECT_TRUE(pods.error().message.ends_with(wrong.says)) << pods.error().message;
  }
  const auto column = ReadFleetPods(folder_.File("p", "name,cpu,memory_mib,num_gpu,gpu_milli\n"), *nodes);
  ASSERT_FALSE(column);
  EXPECT_TRUE(column.error().message.ends_with("p:1: unknown column \"cpu\"")) << column.error().message;
  const auto missing = ReadFleetPods(folder_.File("p", "name,memory_mib,num_gpu,gpu_milli\n"), *nodes);
  ASSERT_FALSE(missing);
  EXPECT_TRUE(missing.error().message.ends_with("has no column \"cpu_milli\"")) << missing.error().message;
  const auto type = ReadFleetNodes(folder_.File("n", std::string(kNodes) + "a,1,1,1,\n"));
  ASSERT_FALSE(type);
  EXPECT_TRUE(type.error().message.ends_with("n:2: model is empty")) << type.error().message;
}

TEST_F(PlanClusterTest, FillsTheGpusAndCountsWhatItRefuses) {
  const auto report = PlanCluster(Small("tessera"));
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_EQ(report->nodes, 10u);
  EXPECT_EQ(report->gpus, 20);
  EXPECT_EQ(report->pods, 30u);
  EXPECT_NEAR(report->bound_pct, 100, 1e-6) << "parts of 600 and 400 fill GPUs";
  ASSERT_EQ(report->points.size(), 26u);
  EXPECT_EQ(report->points.front().arrived_pct, 5);
  EXPECT_EQ(report->points.back().arrived_pct, 130);
  for (const ClusterPoint& point : report->points) {
    EXPECT_LE(point.allocated_pct, std::min(100.0, point.arrived_pct + 0.5));
    EXPECT_LE(point.allocated_pct + point.fragmented_pct, 100 + 1e-6);
  }
  const ClusterRun& run = report->runs.front();
  EXPECT_EQ(run.placed + run.refused, run.arrived);
  EXPECT_GT(run.refused, 0u) << "130 % of the GPUs";
  EXPECT_GE(report->points.back().allocated_pct, 95);
}

TEST_F(PlanClusterTest, IsTheSameWhateverTheThreads) {
  ClusterQuestion question = Small("random");
  question.seeds = 4;
  question.threads = 1;
  const auto one = PlanCluster(question);
  question.threads = 3;
  const auto three = PlanCluster(question);
  ASSERT_TRUE(one && three);
  bool differ = false;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(one->runs[i].seed, i + 1);
    EXPECT_EQ(one->runs[i].placed, three->runs[i].placed);
    EXPECT_EQ(one->runs[i].points.back().allocated_pct, three->runs[i].points.back().allocated_pct);
    differ = differ || one->runs[i].points.back().allocated_pct != one->runs[0].points.back().allocated_pct;
  }
  EXPECT_TRUE(differ) << "each seed has another order";
}

TEST_F(PlanClusterTest, MovesAddWhatIsAllocated) {
  ClusterQuestion question = Small("random");
  question.seeds = 10;
  const auto without = PlanCluster(question);
  question.most_moves_pct = 20;
  const auto with = PlanCluster(question);
  ASSERT_TRUE(without && with);
  std::size_t moved = 0;
  for (const ClusterRun& run : with->runs) {
    moved += run.moved;
    EXPECT_LE(run.moved * 5, run.placed);
  }
  EXPECT_GT(moved, 0u);
  EXPECT_GT(with->points.back().allocated_pct, without->points.back().allocated_pct);
}

TEST_F(PlanClusterTest, SaysWhatIsWrongWithAQuestion) {
  ClusterQuestion question = Small("fgd");
  question.seeds = 0;
  EXPECT_EQ(PlanCluster(question).error().code, ERANGE);
  question = Small("fgd");
  question.most_moves_pct = 101;
  EXPECT_EQ(PlanCluster(question).error().code, ERANGE);
  question = Small("fgd");
  question.nodes = folder_.File("none.csv", std::string(kNodes) + "a,8000,1024,0,\n");
  EXPECT_TRUE(PlanCluster(question).error().message.ends_with("none.csv has a GPU"));
  question = Small("fgd");
  question.pods = folder_.File("none.csv", std::string(kPods) + "a,8000,1024,0,0,\n");
  EXPECT_TRUE(PlanCluster(question).error().message.ends_with("none.csv asks for a GPU"));
}

}  // namespace
}  // namespace tessera::plan
