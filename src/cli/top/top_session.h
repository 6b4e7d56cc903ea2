// Keys: from what the user types to what is shown and asked of the daemon. Knows no terminal and no socket.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/top/model/top_model.h"
#include "client/json.h"

namespace tessera::cli::top {

// A key: a character as the terminal sends it, or a special one.
enum class Special { kNone, kUp, kDown, kPageUp, kPageDown, kHome, kEnd, kEnter, kEscape, kBackspace };
struct Key {
  Special special = Special::kNone;
  std::string character;  // in UTF-8
};

// A request to the daemon.
struct Order {
  std::string method;  // POST or PATCH
  std::string path;
  client::Json body;
  std::string done;     // the message when it is done
  std::string renices;  // the vGPU whose priority it changes, if any
};

// A user's dialogue with `tessera top`: modes, messages and requests that are under way. One thread.
class Session {
 public:
  enum class Mode { kList, kHelp, kSet, kFilter, kAskEvict };

  Model model;

  // Handles a key. The request that it makes to the daemon, if any.
  std::optional<Order> Press(const Key& key);
  // The result of a request. Figures that were asked for after it must be taken (Take) first.
  void Done(const Order& order, const Result<client::Json>& answer);
  // New figures of the daemon, or why there are none.
  void Take(Snapshot snapshot);
  void Lost(const Error& error);
  // How long the daemon has not answered; 0: it answers.
  void SetSilent(Nanos silent) { silent_ = silent; }

  Mode mode() const { return mode_; }
  bool quit() const { return quit_; }
  // The line under the list: the prompt if there is one, else the error, else the last message.
  struct Status {
    std::string text;
    bool wrong = false;
    bool typing = false;  // the cursor stands behind it
  };
  Status status() const;
  // The number of rows in the last picture: the length of a page.
  void SetPage(int rows) { page_ = rows; }

 private:
  std::optional<Order> PressInList(const Key& key);
  bool Navigate(const Key& key);
  std::optional<Order> Edit(const Key& key);
  void Arrange(char key);
  void SetFilter(const std::string& filter);
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
  std::string vgpu_;  // the subject of kSet, whatever is selected by then
  Subject subject_;   // the subject of kAskEvict
  Status said_;
  std::string lost_;
  struct Wish {
    int priority = 0;
    int orders = 0;  // that are under way
  };
  std::map<std::string, Wish> wishes_;  // priorities of vGPUs that the daemon's figures may not have yet
  Nanos silent_ = 0;
  int page_ = 10;
};

}  // namespace tessera::cli::top
