#include "cli/top/top_session.h"

#include <gtest/gtest.h>

#include "cli/testing/top_moment.h"
#include "cli/top/top_screen.h"

namespace tessera::cli::top {
using client::Json;

namespace {

class SessionTest : public testing::Test {
 protected:
  SessionTest() { session.Take(Moment()); }

  // The request that the last of the keys makes, as "POST /v1/vgpus/web/freeze {}"; "" for none.
  std::string Type(const std::string& keys) {
    std::string text;
    for (const std::string& character : Characters(keys)) text = Press({Special::kNone, character});
    return text;
  }
  std::string Press(const Key& key) {
    order = session.Press(key);
    return order ? order->method + " " + order->path + " " + order->body.dump() : "";
  }
  std::string Press(Special special) { return Press(Key{special, ""}); }
  std::string Said() const { return session.status().text; }
  void Select(const std::string& name) {
    for (std::size_t i = 0; i < session.model.rows().size(); ++i) {
      const Row& row = session.model.rows()[i];
      if ((row.process ? row.process->name : row.subject.vgpu) == name) session.model.Select(static_cast<long>(i));
    }
  }

  Session session;
  std::optional<Order> order;
};

TEST_F(SessionTest, FreezesAndThawsWhatIsSelected) {
  Select("web");
  EXPECT_EQ(Type("f"), "POST /v1/vgpus/web/freeze {}");
  session.Done(*order, Json());
  EXPECT_EQ(Said(), "web is frozen");
  Snapshot moment = Moment();
  moment.vgpus[0].frozen_by_operator = moment.processes[0].frozen_by_operator = true;
  session.Take(moment);
  EXPECT_EQ(Type("F"), "POST /v1/vgpus/web/thaw {}");
  EXPECT_EQ(order->done, "web is thawed");
  Select("serve");
  EXPECT_EQ(Type("f"), "") << "it is its vGPU that is frozen";
  EXPECT_NE(Said().find("web is frozen"), std::string::npos);
  Select("train");
  EXPECT_EQ(Type("f"), "POST /v1/processes/20/freeze {}");
  Select("stray");
  EXPECT_EQ(Type("f"), "POST /v1/processes/40/freeze {}");
  EXPECT_EQ(Type("kf"), "") << "a heading";
  EXPECT_TRUE(session.status().wrong);
}

TEST_F(SessionTest, NothingIsAskedWhereNothingIsSelected) {
  session.Take({});
  for (const char* key : {"f", "+", "-", "s", "e"}) {
    EXPECT_EQ(Type(key), "") << key;
    EXPECT_TRUE(session.status().wrong) << key;
  }
}

TEST_F(SessionTest, PrioritiesGoStepByStepAndNotBeyond) {
  Select("serve");
  EXPECT_EQ(Type("+"), R"(PATCH /v1/vgpus/web {"compute_priority":7})");
  EXPECT_EQ(order->done, "web has priority 7 (was 8; lower goes first)");
  EXPECT_EQ(Type("]"), R"(PATCH /v1/vgpus/web {"compute_priority":6})") << "before the daemon told";
  session.Take(Moment(1));
  EXPECT_EQ(Type("-"), R"(PATCH /v1/vgpus/web {"compute_priority":7})") << "the daemon was asked before";
  EXPECT_EQ(Type("["), R"(PATCH /v1/vgpus/web {"compute_priority":8})");
  EXPECT_EQ(Type("--------"), "");
  EXPECT_NE(Said().find("already has the lowest priority, 15"), std::string::npos) << Said();
  Select("stray");
  EXPECT_EQ(Type("+"), "");
  EXPECT_TRUE(session.status().wrong);
}

TEST_F(SessionTest, ThePriorityIsTheDaemonsWhenAllIsDone) {
  Select("web");
  std::vector<Order> orders;
  for (int i = 0; i < 2; ++i) {
    Type("+");
    orders.push_back(*order);
  }
  session.Take(Moment(1));
  session.Done(orders[0], Json());
  session.Take(Moment(2));
  EXPECT_EQ(session.model.snapshot().vgpus[0].priority, 6);
  session.Take(Moment(3));
  session.Done(orders[1], Fail(EPERM, "no"));
  session.Take(Moment(4));
  EXPECT_EQ(session.model.snapshot().vgpus[0].priority, 8);
}

TEST_F(SessionTest, SetTakesWordsForTheVgpuThatWasSelected) {
  Select("batch");
  Type("s");
  EXPECT_EQ(Said(), "tessera vgpu set batch --");
  EXPECT_TRUE(session.status().typing);
  Type("memory 2Gx");
  Press(Special::kBackspace);
  Select("web");  // a refresh may move it
  EXPECT_EQ(Said(), "tessera vgpu set batch --memory 2G");
  EXPECT_EQ(Press(Special::kEnter), R"(PATCH /v1/vgpus/batch?wait=false {"memory_limit":"2G"})");
  session.Done(*order, Fail(EBUSY, "there is no room", "ask for less"));
  EXPECT_EQ(Said(), "there is no room; ask for less");
  EXPECT_TRUE(session.status().wrong);
}

TEST_F(SessionTest, SetRefusesWhatIsNoSettingAndAsksNothingForNothing) {
  Select("batch");
  Type("scolour blue");
  EXPECT_EQ(Press(Special::kEnter), "");
  EXPECT_NE(Said().find("unknown setting '--colour'"), std::string::npos) << Said();
  Type("s");
  Press(Special::kEscape);
  EXPECT_EQ(session.mode(), Session::Mode::kList);
  Type("s");
  for (int i = 0; i < 5; ++i) Press(Special::kBackspace);
  EXPECT_EQ(Press(Special::kEnter), "");
  EXPECT_FALSE(session.quit());
}

TEST_F(SessionTest, EvictsOnlyAfterYes) {
  Select("web");
  EXPECT_EQ(Type("en"), "");
  EXPECT_EQ(Said(), "eviction cancelled");
  EXPECT_EQ(Type("e"), "");
  EXPECT_NE(Said().find("memory of web"), std::string::npos);
  session.model.Move(3);
  EXPECT_EQ(Type("y"), R"(POST /v1/vgpus/web/evict {"to_bytes":0})");
  session.Done(*order, Json{{"evictions", {{{"evicting_bytes", 64 * kMiB}}, {{"evicting_bytes", 32 * kMiB}}}}});
  EXPECT_EQ(Said(), "web: moving 96 MiB to host memory");
  session.Done(*order, Json{{"evictions", Json::array()}});
  EXPECT_EQ(Said(), "web: nothing to move");
}

TEST_F(SessionTest, FiltersWhileItIsTyped) {
  Type("/trai");
  EXPECT_EQ(session.model.rows().size(), 2u);
  EXPECT_EQ(Said(), "Filter: trai");
  Type("q");
  EXPECT_FALSE(session.quit()) << "a letter as others";
  Press(Special::kBackspace);
  Press(Special::kEnter);
  EXPECT_EQ(session.model.arrangement().filter, "trai");
  Press(Special::kEscape);
  EXPECT_EQ(session.model.arrangement().filter, "");
}

TEST_F(SessionTest, KeysMoveSortAndLeave) {
  session.SetPage(3);
  Type("jj");
  EXPECT_EQ(session.model.selected(), 2u);
  Press(Special::kPageDown);
  EXPECT_EQ(session.model.selected(), 5u);
  Press(Special::kEnd);
  EXPECT_EQ(session.model.selected(), 7u);
  Press(Special::kPageUp);
  Press(Special::kUp);
  EXPECT_EQ(session.model.selected(), 3u);
  Press(Special::kHome);
  EXPECT_EQ(session.model.selected(), 0u);
  Type("o");
  EXPECT_EQ(Said(), "sorted by share");
  Type("<");
  EXPECT_EQ(session.model.arrangement().sort, SortBy::kName);
  Type("I");
  EXPECT_TRUE(session.model.arrangement().reversed);
  Type("t");
  EXPECT_FALSE(session.model.arrangement().tree);
  Type("?");
  EXPECT_EQ(session.mode(), Session::Mode::kHelp);
  Type("q");
  EXPECT_FALSE(session.quit()) << "any key leaves the help";
  Type("é\x01z");
  Type("q");
  EXPECT_TRUE(session.quit());
}

TEST_F(SessionTest, SaysWhenTheDaemonIsGoneAndWhenItIsBack) {
  session.Lost({ECONNREFUSED, "no daemon answers", "start one"});
  EXPECT_EQ(Said(), "retrying: no daemon answers; start one");
  EXPECT_TRUE(session.status().wrong);
  session.Take(Moment(1));
  EXPECT_EQ(Said(), "the daemon answers again");
  EXPECT_FALSE(session.status().wrong);
  session.SetSilent(5 * kSecond + 1);
  EXPECT_NE(Said().find("has not answered for 5 s"), std::string::npos);
  session.SetSilent(0);
  EXPECT_EQ(Said(), "the daemon answers again");
}

}  // namespace
}  // namespace tessera::cli::top
