#!/usr/bin/env python3
"""How far back the answers of Object Collision lie, for the worlds of this folder's configurations.

    python3 experiments/collision/answer_ages.py [--seeds N]      # writes results/answer_ages.json and prints a table

The worlds are simulated here, by the rules in docs/tasks.md, without the library's generator. Each part of a configuration (train, valid,
test) is cut into `train.batch` pieces; memory is empty at the start of a piece. An answer needs a collision (the easy version's second
question: three collisions, of which the oldest counts). Its age is the number of tokens between the collision's step and the question.
"""

import argparse
import json
import pathlib
import random
import statistics
import tomllib

HERE = pathlib.Path(__file__).parent
SPANS = (32, 64, 256, 512, 1024, 2048)  # tokens
SPEED, NEW_COLOUR, ASK_FOR_LAST = 0.5, 0.05, 0.4


class Particle:
    def __init__(self, draw, edge, colours):
        self.draw, self.edge, self.colours = draw, edge, colours
        self.row, self.column = edge * draw.random(), edge * draw.random()
        self.new_velocity()
        self.colour = draw.randrange(colours)

    def new_velocity(self):
        self.down, self.right = self.draw.gauss(0, SPEED), self.draw.gauss(0, SPEED)

    def move(self):
        while not (0 < self.row + self.down < self.edge and 0 < self.column + self.right < self.edge):
            self.new_velocity()
        self.row += self.down
        self.column += self.right
        if self.draw.random() < NEW_COLOUR:
            self.colour = self.draw.randrange(self.colours)

    def cell(self):
        return round(self.row), round(self.column)


def answers(world, steps, draw):
    """(step of the question, step of the collision that it needs) for each scored question, and the number of collisions."""
    one, other = (Particle(draw, world["grid"] - 1, world["colours"]) for _ in range(2))
    last_of, newest, last_pair, collisions = {}, [], None, 0
    scored = []
    for step in range(steps):
        one.move()
        other.move()
        if one.cell() == other.cell():
            last_pair = one.colour, other.colour
            last_of[last_pair] = step
            newest = [step, *newest[:2]]
            collisions += 1
        if world["easy"]:
            needed = 1 if draw.random() < 0.5 else 3
            if len(newest) >= needed:
                scored.append((step, newest[needed - 1]))
            continue
        pair = last_pair
        if pair is None or draw.random() >= ASK_FOR_LAST:
            pair = draw.randrange(world["colours"]), draw.randrange(world["colours"])
        if pair in last_of:
            scored.append((step, last_of[pair]))
    return scored, collisions


def measure(world, steps, pieces, seed):
    scored, collisions = answers(world, steps, random.Random(seed))
    length = steps // pieces
    tokens = 5 if world["easy"] else 8
    ages = [tokens * (asked - met) for asked, met in scored]
    return {
        "steps_per_collision": steps / max(1, collisions),
        "before_the_piece": statistics.mean(met < asked // length * length for asked, met in scored),
        "older_than": {span: statistics.mean(age > span for age in ages) for span in SPANS},
        "median_age": statistics.median(ages),
    }


def mean(found):
    """The mean of the measurements, key by key."""
    if isinstance(found[0], dict):
        return {key: mean([f[key] for f in found]) for key in found[0]}
    return round(statistics.mean(found), 3)


def measure_part(world, part, seeds):
    steps, pieces = world[f"{part}_steps"], world["pieces"]
    return {"steps_in_a_piece": steps // pieces, **mean([measure(world, steps, pieces, seed) for seed in range(seeds)])}


def worlds():
    """The configurations of each world."""
    found = {}
    for path in sorted(HERE.glob("*.toml")):
        config = tomllib.loads(path.read_text())
        options = {"easy": False, "grid": 16, "colours": 5, "train_steps": 10**6, "valid_steps": 20000, "test_steps": 10**5} | config["collision"]
        key = json.dumps(options | {"pieces": config["train"]["batch"]})
        found.setdefault(key, []).append(path.stem)
    return [(json.loads(key), names) for key, names in found.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8, help="simulations of valid and test; of train, one")
    seeds = parser.parse_args().seeds
    results = []
    print("| world | part | steps in a piece | answers before the piece | older than 1,024 tokens | median age, tokens |\n|---|---|---|---|---|---|")
    for world, names in worlds():
        result = {"configurations": names, "world": world, "seeds": seeds, "parts": {}}
        for part in ("train", "valid", "test"):
            found = measure_part(world, part, 1 if part == "train" else seeds)
            result["parts"][part] = found
            colours = "easy" if world["easy"] else f"colours: {world['colours']}"
            name = f"{world['grid']} x {world['grid']}, {colours}"
            cells = [name, part, f"{found['steps_in_a_piece']:,}", f"{100 * found['before_the_piece']:.0f} %", f"{100 * found['older_than'][1024]:.0f} %", f"{found['median_age']:,.0f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
        results.append(result)
    out = HERE / "results" / "answer_ages.json"
    out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
