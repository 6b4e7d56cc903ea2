#include "cli/top/top_view.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/testing/top_moment.h"

namespace tessera::cli::top {
namespace {

class ViewTest : public testing::Test {
 protected:
  ViewTest() {
    setenv("TZ", "UTC", 1);
    session.Take(Moment(1));
    session.Take(Moment(2));
  }

  std::string Picture(int width = 80, int height = 24, bool unicode = true) {
    Screen screen(width, height, unicode);
    cursor = Draw(session, screen);
    return screen.Text();
  }

  Session session;
  std::optional<Cursor> cursor;
};

TEST_F(ViewTest, EightyByTwentyFour) {
  EXPECT_EQ(Picture(), R"(tessera top - 3 vGPUs, 4 processes                                      00:00:00
GPU 0 busy [|||||||||||90.0%] mem [||||.......1G/4G]                           █
      Tessera Soft GPU, channels; promised 3G and 50% of time; swap 0/11G

VGPU / PROGRAM     PRI   WGT STATE    SHARE       COMPUTE MEMORY        MINUTE
batch               12   100 waiting  [+++ 30.0%]   0:100 [||| 256M/1G]        ▃
└ 20 train                   active     work 90%                  256M         █
notebook             8   100 idle     [..   0.0%]  20:100 [|   128M/1G]        ▁
└ 10 jupyter                 idle        work 0%                  128M         ▁
web                  8   100 running  [|||+60.0%]  30:100 [||||512M/1G]        ▅
└ 30 serve                   active     work 70%                  512M         ▆
(in no vGPU)
└ 40 stray                   idle        work 0%                   64M         ▁










fFreeze + -Priority sSet eEvict oSort tTree /Filter ?Help qQuit
)");
  EXPECT_FALSE(cursor);
}

TEST_F(ViewTest, InAscii) {
  const std::string text = Picture(80, 24, false);
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); })) << text;
}

TEST_F(ViewTest, OnceIsThePictureWithoutKeys) {
  EXPECT_EQ(Text(session.model, 80, true),
            R"(tessera top - 3 vGPUs, 4 processes                                      00:00:00
GPU 0 busy [|||||||||||90.0%] mem [||||.......1G/4G]
      Tessera Soft GPU, channels; promised 3G and 50% of time; swap 0/11G

VGPU / PROGRAM              PRI   WGT STATE    SHARE       COMPUTE MEMORY
batch                        12   100 waiting  [+++ 30.0%]   0:100 [||| 256M/1G]
└ 20 train                            active     work 90%                  256M
notebook                      8   100 idle     [..   0.0%]  20:100 [|   128M/1G]
└ 10 jupyter                          idle        work 0%                  128M
web                           8   100 running  [|||+60.0%]  30:100 [||||512M/1G]
└ 30 serve                            active     work 70%                  512M
(in no vGPU)
└ 40 stray                            idle        work 0%                   64M
)");
}

TEST_F(ViewTest, AnySizeHoldsWhatFits) {
  for (const char* key : {"", "h"}) {
    session.Press({Special::kNone, key});
    for (const int width : {1, 2, 7, 20, 41, 79, 133, 300}) {
      for (const int height : {1, 2, 3, 4, 5, 9, 10, 16, 100}) {
        Screen screen(width, height, true);
        Draw(session, screen);
        const std::string text = screen.Text();
        EXPECT_EQ(std::ranges::count(text, '\n'), height);
      }
    }
  }
  session.Press({Special::kNone, "h"});
  EXPECT_EQ(Picture(20, 5), R"(tessera top 00:00:00
GPU 0 busy [|90.0%]
VGPU / PROGRAM
batch

)");
}

TEST_F(ViewTest, TheSelectedRowIsAlwaysThere) {
  for (int row = 0; row < 8; ++row) {
    session.model.Select(row);
    Screen screen(80, 6, true);
    Draw(session, screen);
    int marked = 0;
    for (int y = 3; y < 5; ++y) marked += screen.At(0, y).style.reverse;
    EXPECT_EQ(marked, 1) << row << "\n" << screen.Text();
  }
}

TEST_F(ViewTest, NamesCannotTakeOverTheTerminal) {
  Snapshot moment = Moment(3);
  moment.gpus[0].name = "\033[2J";
  moment.vgpus[0].name = "web\033[31m\xff";
  moment.processes[1].name = "\033]0;title\007";
  session.Take(moment);
  session.Lost({EIO, "what\r\n\033[H", ""});
  const std::string text = Picture();
  EXPECT_TRUE(std::ranges::none_of(text, [](char c) { return c != '\n' && static_cast<unsigned char>(c) < ' '; }))
      << text;
  EXPECT_NE(text.find("?]0;title"), std::string::npos) << text;
}

TEST_F(ViewTest, ManyGpusLeaveRoomForTheList) {
  Snapshot moment = Moment(3);
  for (int i = 1; i < 16; ++i) moment.gpus.push_back({.index = i});
  session.Take(moment);
  const std::string text = Picture();
  EXPECT_NE(text.find("GPU 8 "), std::string::npos) << text;
  EXPECT_NE(text.find("and 7 other GPUs (no room to show them)"), std::string::npos) << text;
  EXPECT_NE(text.find("batch"), std::string::npos) << text;
}

TEST_F(ViewTest, TheCursorStandsBehindWhatIsTyped) {
  for (const char* key : {"s", "m", "e"}) session.Press({Special::kNone, key});
  Picture();
  ASSERT_TRUE(cursor);
  EXPECT_EQ(cursor->y, 22);
  EXPECT_EQ(cursor->x, static_cast<int>(std::string("tessera vgpu set batch --me").size()));
  for (int i = 0; i < 100; ++i) session.Press({Special::kNone, "x"});
  EXPECT_NE(Picture().find("\n" + std::string(79, 'x') + "\n"), std::string::npos);
  EXPECT_EQ(cursor->x, 79);
}

TEST_F(ViewTest, WithoutADaemonThereIsAMessage) {
  Session first;
  first.Lost({ECONNREFUSED, "no daemon answers", ""});
  Screen screen(80, 24, true);
  Draw(first, screen);
  EXPECT_TRUE(screen.Text().starts_with("tessera top\n")) << screen.Text();
  EXPECT_NE(screen.Text().find("\nretrying: no daemon answers"), std::string::npos);
}

}  // namespace
}  // namespace tessera::cli::top
