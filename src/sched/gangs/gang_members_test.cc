#include "sched/gangs/gang_members.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace tessera::sched {
namespace {

using Gangs = std::map<VgpuId, GangId>;
using Vgpus = std::vector<GangCandidate>;

// vGPU 10 * n + g is on GPU g.
GangCandidate Vgpu(VgpuId id, const std::string& gang = "", std::initializer_list<GangProgram> programs = {}) {
  return {.vgpu = id, .gpu = id % 10, .owner = 1000, .gang = gang, .in_use = true, .programs = programs};
}
GangProgram Program(std::int64_t number, std::initializer_list<VgpuId> joined = {}) {
  return {.number = number, .joined = joined};
}
Gangs ByUse(const Vgpus& vgpus) { return FindGangs(vgpus, GangBond::kUse); }
Gangs ByJoin(const Vgpus& vgpus) { return FindGangs(vgpus, GangBond::kJoin); }

TEST(GangMembers, AProgramOnSeveralGpusIsOne) {
  const Vgpus vgpus = {Vgpu(10, "", {Program(7)}), Vgpu(20, "", {Program(8)}), Vgpu(11, "", {Program(7)})};
  EXPECT_EQ(ByUse(vgpus), (Gangs{{10, 10}, {11, 10}}));
  EXPECT_EQ(ByJoin(vgpus), (Gangs{{10, 10}, {11, 10}}));
}

TEST(GangMembers, ThoseThatProgramsJoinAreOneForTimeOnly) {
  const Vgpus vgpus = {Vgpu(10, "", {Program(7, {10, 11})}), Vgpu(11, "", {Program(8, {10, 11})})};
  EXPECT_EQ(ByUse(vgpus), Gangs());
  EXPECT_EQ(ByJoin(vgpus), (Gangs{{10, 10}, {11, 10}}));
}

TEST(GangMembers, ANameMakesOneOfSeveralPrograms) {
  const Vgpus vgpus = {Vgpu(11, "job", {Program(7)}), Vgpu(20, "", {Program(9)}), Vgpu(10, "job", {Program(8)}),
                       Vgpu(30, "other", {Program(5)}), Vgpu(31, "other", {Program(6)})};
  const Gangs gangs = {{10, 10}, {11, 10}, {30, 30}, {31, 30}};
  EXPECT_EQ(ByUse(vgpus), gangs);
  EXPECT_EQ(ByJoin(vgpus), gangs);
}

TEST(GangMembers, ANameIsOfOneUser) {
  Vgpus vgpus = {Vgpu(10, "job"), Vgpu(11, "job")};
  vgpus[1].owner = 1001;
  EXPECT_EQ(ByUse(vgpus), Gangs());
}

TEST(GangMembers, OneThatNobodyUsesIsNotInItsNamesGang) {
  Vgpus vgpus = {Vgpu(10, "job"), Vgpu(11, "job"), Vgpu(12, "job")};
  vgpus[1].in_use = false;
  EXPECT_EQ(ByUse(vgpus), (Gangs{{10, 10}, {12, 10}}));
  vgpus[2].in_use = false;
  EXPECT_EQ(ByUse(vgpus), Gangs()) << "the other ranks have not begun";
}

TEST(GangMembers, OfOneNameSeveralMayBeOnAGpu) {
  EXPECT_EQ(ByUse({Vgpu(10, "job"), Vgpu(20, "job"), Vgpu(11, "job")}), (Gangs{{10, 10}, {20, 10}, {11, 10}}));
  EXPECT_EQ(ByUse({Vgpu(10, "job"), Vgpu(20, "job")}), Gangs()) << "it is not on several GPUs";
}

TEST(GangMembers, NamesCountMoreThanTheGuessAndLessThanWhatIsUsed) {
  Vgpus vgpus = {Vgpu(10, "one", {Program(7, {10, 11})}), Vgpu(11, "two", {Program(8, {10, 11})})};
  EXPECT_EQ(ByJoin(vgpus), Gangs()) << "programs that have nothing to do with each other";
  vgpus[1].gang = "";
  EXPECT_EQ(ByJoin(vgpus), Gangs());
  vgpus[0].programs.push_back(Program(8, {10, 11}));
  EXPECT_EQ(ByJoin(vgpus), (Gangs{{10, 10}, {11, 10}})) << "a program is on both";
  vgpus[1].gang = "two";
  vgpus.push_back(Vgpu(21, "one"));
  vgpus.push_back(Vgpu(12, "two"));
  EXPECT_EQ(ByUse(vgpus), (Gangs{{10, 10}, {11, 10}, {12, 10}, {21, 10}})) << "so the gangs are one";
}

TEST(GangMembers, WhatIsTogetherStaysTogether) {
  const Vgpus vgpus = {Vgpu(20, "", {Program(8), Program(9)}), Vgpu(21, "", {Program(8)}), Vgpu(10, "", {Program(9)})};
  EXPECT_EQ(ByUse(vgpus), (Gangs{{10, 10}, {20, 10}, {21, 10}}));
}

TEST(GangMembers, AJoinedOneThatIsGoneIsNobodys) {
  EXPECT_EQ(ByJoin({Vgpu(10, "", {Program(7, {10, 99})})}), Gangs());
  EXPECT_EQ(ByJoin({}), Gangs());
}

}  // namespace
}  // namespace tessera::sched
