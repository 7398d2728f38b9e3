// What a session watches: a text that models read and go on with, or an agent in its world.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lapse {

using Json = nlohmann::ordered_json;

class Subject {
 public:
  /// All that a step changes.
  struct State {
    virtual ~State() = default;
  };

  virtual ~Subject() = default;

  /// Steps so far: tokens that were read, or what an agent did.
  virtual int64_t time() const = 0;
  /// Why there is no next step; empty: there is one, if need be of its own making.
  virtual std::string stuck() const { return ""; }
  /// Whether the next step is there already: it was given, or it was taken before an undo.
  virtual bool given() const { return false; }
  /// One step. An event that says what it changed, as JSON: written when it is called, by another thread.
  virtual std::function<std::string()> step() = 0;

  virtual std::shared_ptr<const State> save() const = 0;
  /// As it was. The steps after it can be taken once more, exactly as before, up to what `forget_after` leaves.
  virtual void restore(const State& state) = 0;
  /// Steps from this time on will not be taken again.
  virtual void forget_after(int64_t time) { (void)time; }
  /// Steps before this time will not be asked for again.
  virtual void forget_before(int64_t time) { (void)time; }

  /// What is watched: lanes, their layers and what their methods tell.
  virtual Json describe() const = 0;
  /// What the methods tell of every row that is there: lanes of layers of {"time": [...], "told": [[...], ...]}.
  virtual Json told() const = 0;
  /// Of the row of a time: what the methods tell of it now, what raised that, and how the newest step read it.
  /// `before`: the state before the newest step, or before one that came earlier.
  virtual Json row(int64_t time, const State& before) = 0;
};

}  // namespace lapse
