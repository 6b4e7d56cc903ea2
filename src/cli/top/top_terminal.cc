#include "cli/top/top_terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "cli/terminal/printable.h"

#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <term.h>

namespace tessera::cli::top {
namespace {

constexpr int kEscapeDelayMs = 50;  // until an escape is one, and no begin of a special key

Result<void> CheckTerminal() {
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
    return Fail(ENOTTY, "stdin or stdout is no terminal, so nothing can be redrawn",
                "use 'tessera top --once', or --json");
  }
  const char* name = std::getenv("TERM");
  const std::string shown = Printable(name ? name : "");
  const char* const way = "set TERM to what your terminal is, such as xterm-256color, or use 'tessera top --once'";
  int found = 0;
  // 0: it is not known, or (as "dumb") of no use; -1: there is no database of terminals.
  if (!name || !*name || setupterm(name, STDOUT_FILENO, &found) != OK)
    return Fail(ENODEV, shown.empty() ? "TERM is not set" : "TERM is '" + shown + "', which is not known here", way);
  if (!cursor_address) return Fail(ENODEV, "TERM is '" + shown + "', a terminal on which nothing can be redrawn", way);
  return {};
}

short CursesColour(Colour colour) {
  static constexpr short kColours[] = {-1, COLOR_RED, COLOR_GREEN, COLOR_YELLOW, COLOR_BLUE, COLOR_MAGENTA, COLOR_CYAN};
  return kColours[static_cast<int>(colour)];
}

std::string InUtf8(wchar_t character) {
  char bytes[MB_LEN_MAX];
  std::mbstate_t state{};
  const std::size_t length = std::wcrtomb(bytes, character, &state);
  return length == static_cast<std::size_t>(-1) ? std::string() : std::string(bytes, length);
}

Special SpecialOf(wint_t code) {
  switch (code) {
    case KEY_UP:
      return Special::kUp;
    case KEY_DOWN:
      return Special::kDown;
    case KEY_PPAGE:
      return Special::kPageUp;
    case KEY_NPAGE:
      return Special::kPageDown;
    case KEY_HOME:
      return Special::kHome;
    case KEY_END:
      return Special::kEnd;
    case KEY_ENTER:
      return Special::kEnter;
    case KEY_BACKSPACE:
      return Special::kBackspace;
    default:
      return Special::kNone;
  }
}

}  // namespace

bool LocaleIsUtf8() {
  std::setlocale(LC_CTYPE, "");
  return std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

Result<std::unique_ptr<Terminal>> Terminal::Open() {
  const bool unicode = LocaleIsUtf8();
  if (auto fits = CheckTerminal(); !fits) return std::unexpected(fits.error());
  SCREEN* screen = newterm(nullptr, stdout, stdin);
  if (!screen) return Fail(ENODEV, "the terminal cannot be prepared", "use 'tessera top --once'");
  std::unique_ptr<Terminal> terminal(new Terminal(screen));
  terminal->unicode_ = unicode;
  const char* no_colour = std::getenv("NO_COLOR");
  terminal->colours_ = has_colors() && !(no_colour && *no_colour) && start_color() == OK;
  if (terminal->colours_) {
    use_default_colors();
    for (const Colour colour :
         {Colour::kRed, Colour::kGreen, Colour::kYellow, Colour::kBlue, Colour::kMagenta, Colour::kCyan})
      init_pair(static_cast<short>(colour), CursesColour(colour), -1);
  }
  cbreak();
  noecho();
  nonl();
  set_escdelay(kEscapeDelayMs);
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  curs_set(0);
  return terminal;
}

Terminal::~Terminal() {
  endwin();
  delscreen(static_cast<SCREEN*>(screen_));
}

Screen Terminal::Blank() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0 &&
      (size.ws_col != COLS || size.ws_row != LINES)) {
    resizeterm(size.ws_row, size.ws_col);
    clearok(stdscr, TRUE);  // what the terminal made of the old picture is its own affair
  }
  return {COLS, LINES, unicode_};
}

void Terminal::Show(const Screen& screen, const std::optional<Cursor>& cursor) {
  erase();
  for (int y = 0; y < screen.height(); ++y) {
    for (int x = 0; x < screen.width(); ++x) {
      const Cell& cell = screen.At(x, y);
      attr_t attributes = (cell.style.bold ? A_BOLD : A_NORMAL) | (cell.style.reverse ? A_REVERSE : A_NORMAL);
      if (colours_) attributes |= COLOR_PAIR(static_cast<int>(cell.style.colour));
      attrset(static_cast<int>(attributes));
      mvaddstr(y, x, cell.character.c_str());
    }
  }
  curs_set(cursor ? 1 : 0);
  if (cursor) move(cursor->y, cursor->x);
  refresh();
}

std::optional<Key> Terminal::Read() {
  wint_t code = 0;
  switch (get_wch(&code)) {
    case KEY_CODE_YES:
      return Key{SpecialOf(code), ""};
    case OK:
      if (code == L'\r' || code == L'\n') return Key{Special::kEnter, ""};
      if (code == 27) return Key{Special::kEscape, ""};
      if (code == 8 || code == 127) return Key{Special::kBackspace, ""};
      return Key{Special::kNone, InUtf8(static_cast<wchar_t>(code))};
    default:
      return std::nullopt;
  }
}

void Terminal::Stop() {
  endwin();
  raise(SIGSTOP);
  clearok(stdscr, TRUE);
}

}  // namespace tessera::cli::top
