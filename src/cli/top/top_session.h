// What keys do: from what is typed to what is shown and asked of the daemon. Knows no terminal and no socket.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/top/top_model.h"
#include "client/json.h"

namespace tessera::cli::top {

// A key: a character as the terminal sends it, or a special one.
enum class Special { kNone, kUp, kDown, kPageUp, kPageDown, kHome, kEnd, kEnter, kEscape, kBackspace };
struct Key {
  Special special = Special::kNone;
  std::string character;  // in UTF-8
};

// Something that the daemon is to do.
struct Order {
  std::string method;  // POST or PATCH
  std::string path;
  client::Json body;
  std::string done;     // what is said when it is done
  std::string renices;  // the vGPU whose priority it changes, if any
};

class Session {
 public:
  enum class Mode { kList, kHelp, kSet, kFilter, kAskEvict };

  Model model;

  // What it asks of the daemon, if anything.
  std::optional<Order> Press(const Key& key);
  // What became of that. What was asked for later is to be taken before.
  void Done(const Order& order, const Result<client::Json>& answer);
  // The daemon's figures, or why there are none.
  void Take(Snapshot snapshot);
  void Lost(const Error& error);
  // That it has not answered for so long; 0: it has.
  void SetSilent(Nanos silent) { silent_ = silent; }

  Mode mode() const { return mode_; }
  bool quit() const { return quit_; }
  // The line under the list: the question or what is typed, else what is wrong, else what was done last.
  struct Status {
    std::string text;
    bool wrong = false;
    bool typing = false;  // the cursor stands behind it
  };
  Status status() const;
  // How many rows the last picture had room for: what a page is.
  void SetPage(int rows) { page_ = rows; }

 private:
  std::optional<Order> PressInList(const Key& key);
  bool Navigate(const Key& key);
  std::optional<Order> Edit(const Key& key);
  void Arrange(char key);
  std::optional<Order> ToggleFreeze();
  std::optional<Order> Renice(int step);
  std::optional<Order> Set();
  std::optional<Order> Evict();
  const Row* Target();  // of freeze and evict: selected, and not a heading
  void Say(std::string text, bool wrong = false);

  Mode mode_ = Mode::kList;
  bool quit_ = false;
  bool connected_ = true;
  std::string text_;  // what is typed
  std::string vgpu_;  // whom kSet is about, whatever is selected by then
  Subject subject_;   // whom kAskEvict is about
  Status said_;
  std::string lost_;
  struct Wish {
    int priority = 0;
    int orders = 0;  // that are under way
  };
  std::map<std::string, Wish> wishes_;  // priorities of vGPUs that the daemon may not tell of yet
  Nanos silent_ = 0;
  int page_ = 10;
};

}  // namespace tessera::cli::top
