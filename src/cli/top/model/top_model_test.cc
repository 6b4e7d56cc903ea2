#include "cli/top/model/top_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/testing/top_moment.h"

namespace tessera::cli::top {
namespace {

// "web 30 batch 20": vGPUs and pids in the order of the rows, "-" for those in none.
std::string Rows(const Model& model) {
  std::string text;
  for (const Row& row : model.rows()) {
    text += text.empty() ? "" : " ";
    text += row.process ? std::to_string(row.process->pid) : row.vgpu ? row.vgpu->name : "-";
  }
  return text;
}

std::string Selected(const Model& model) {
  const Row* row = model.selected_row();
  return !row ? "none" : row->process ? std::to_string(row->process->pid) : row->subject.vgpu;
}

void SortNext(Model& model, int step) {
  model.Rearrange([step](Arrangement& arranged) { arranged.sort = Next(arranged.sort, step); });
}

TEST(Model, ProcessesAreUnderTheirVgpus) {
  Model model;
  EXPECT_EQ(Selected(model), "none");
  model.Take(Moment());
  EXPECT_EQ(Rows(model), "batch 20 notebook 10 web 30 - 40");
  EXPECT_EQ(model.rows()[1].vgpu->name, "batch");
  EXPECT_TRUE(model.rows()[1].last);
  EXPECT_EQ(model.rows()[7].vgpu, nullptr);
  model.Rearrange([](Arrangement& arranged) { arranged.tree = false; });
  EXPECT_EQ(Rows(model), "10 30 40 20") << "by name";
}

TEST(Model, WorkIsWhatWasAddedSinceTheMomentBefore) {
  Model model;
  model.Take(Moment(1));
  EXPECT_FALSE(model.snapshot().processes[0].work_pct);
  model.Take(Moment(3));
  EXPECT_DOUBLE_EQ(*model.snapshot().processes[0].work_pct, 70);
  EXPECT_DOUBLE_EQ(*model.snapshot().processes[2].work_pct, 0);
  Snapshot another = Moment(4);
  another.processes[0].busy_us = 5;  // another program with that pid
  another.processes[1].busy_us.reset();
  model.Take(another);
  EXPECT_FALSE(model.snapshot().processes[0].work_pct);
  EXPECT_FALSE(model.snapshot().processes[1].work_pct);
}

TEST(Model, SelectionStaysWithItsSubject) {
  Model model;
  model.Take(Moment());
  model.Move(4);
  EXPECT_EQ(Selected(model), "web");
  SortNext(model, 1);
  EXPECT_EQ(Rows(model), "web 30 batch 20 notebook 10 - 40") << "by share";
  EXPECT_EQ(Selected(model), "web");
  model.Select(1);
  Snapshot next = Moment(1);
  std::ranges::reverse(next.processes);
  std::swap(next.vgpus[0].now_pct, next.vgpus[2].now_pct);
  model.Take(next);
  EXPECT_EQ(Rows(model), "notebook 10 batch 20 web 30 - 40");
  EXPECT_EQ(Selected(model), "30");
}

TEST(Model, WhoeverTakesThePlaceOfOneThatIsGoneIsSelected) {
  Model model;
  model.Take(Moment());
  model.Select(100);
  EXPECT_EQ(Selected(model), "40");
  Snapshot next = Moment(1);
  next.processes.pop_back();
  model.Take(next);
  EXPECT_EQ(Rows(model), "batch 20 notebook 10 web 30");
  EXPECT_EQ(Selected(model), "30");
  model.Take({});
  EXPECT_EQ(Selected(model), "none");
  model.Move(1);
  model.Take(Moment(2));
  EXPECT_EQ(Selected(model), "30") << "as before";
  model.Move(-100);
  EXPECT_EQ(Selected(model), "batch");
}

TEST(Model, SortsByEachColumnAndTheOtherWayRound) {
  Model model;
  model.Take(Moment());
  std::vector<std::string> orders;
  for (int i = 0; i < kSortings; ++i) {
    orders.push_back(std::string(NameOf(model.arrangement().sort)) + ": " + Rows(model));
    SortNext(model, 1);
  }
  EXPECT_EQ(orders[2], "memory: web 30 batch 20 notebook 10 - 40");
  EXPECT_EQ(orders[4], "priority: notebook 10 web 30 batch 20 - 40");
  EXPECT_EQ(orders[6], "state: notebook 10 web 30 batch 20 - 40");
  EXPECT_EQ(model.arrangement().sort, SortBy::kName);
  model.Rearrange([](Arrangement& arranged) { arranged.reversed = true; });
  EXPECT_EQ(Rows(model), "web 30 notebook 10 batch 20 - 40");
  SortNext(model, -1);
  EXPECT_EQ(model.arrangement().sort, SortBy::kState);
}

TEST(Model, FiltersByNamePidAndVgpu) {
  Model model;
  model.Take(Moment());
  const auto filtered = [&model](const char* filter) {
    model.Rearrange([&](Arrangement& arranged) { arranged.filter = filter; });
    return Rows(model);
  };
  EXPECT_EQ(filtered("NOTE"), "notebook 10");
  EXPECT_EQ(filtered("train"), "batch 20");
  EXPECT_EQ(filtered("40"), "- 40");
  EXPECT_EQ(filtered("nobody"), "");
  EXPECT_FALSE(model.selected());
  model.Rearrange([](Arrangement& arranged) { arranged.tree = false; });
  EXPECT_EQ(filtered("web"), "30");
  EXPECT_EQ(filtered(""), "10 30 40 20");
}

TEST(Model, RemembersTheMinuteOfEach) {
  Model model;
  for (int second = 0; second < 10; ++second) model.Take(Moment(second));
  EXPECT_EQ(model.Minute({Subject::kGpu, 0, "", 0}, 60).back(), 90);
  EXPECT_EQ(model.Minute({Subject::kVgpu, 0, "web", 0}, 60).back(), 60);
  EXPECT_EQ(model.Minute({Subject::kVgpu, 0, "web", 0}, 60).front(), std::nullopt);
  EXPECT_NEAR(*model.Minute({Subject::kProcess, 0, "", 20}, 60).back(), 90, 1e-9);
  EXPECT_EQ(model.Minute({Subject::kVgpu, 0, "nobody", 0}, 2), (std::vector<std::optional<double>>(2)));
}

TEST(Model, ProgramsOnSeveralGpusAreUnderEach) {
  Snapshot moment = Moment();
  moment.gpus.push_back({.index = 1});
  moment.vgpus.push_back({.name = "other", .gpu = 1});
  moment.processes.push_back({.pid = 30, .name = "serve", .vgpu = "other", .gpu = 1});
  moment.processes.push_back({.pid = 50, .name = "stray", .gpu = 1});
  Model model;
  model.Take(moment);
  EXPECT_EQ(Rows(model), "batch 20 notebook 10 other 30 web 30 - 40 - 50");
}

}  // namespace
}  // namespace tessera::cli::top
