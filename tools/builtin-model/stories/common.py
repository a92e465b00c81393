"""What all plots share: who the hero is, how a story opens and closes, things and places, small feelings."""

import engine
import lexicon as lex

HABITS = engine.choices(lex.HABITS)


def cast(s, hero="child animal", friend=None, friend_kinds=None, kinds=None):
    """Chooses hero A and, where asked, friend B. `hero` and `friend` are words of: child animal machine worker relative."""
    s.cast["A"] = person(s, s.pick(hero.split()), None, (), kinds)
    if friend:
        a = s.cast["A"]
        s.cast["B"] = person(s, s.pick(friend.split()), a.pronoun, (a.name, a.kind), friend_kinds)


def person(s, sort, avoid, taken, kinds=None):
    if sort == "child":
        return engine.child(s.rng, avoid, taken)
    if sort == "animal":
        return engine.animal(s.rng, avoid, taken, kinds)
    if sort == "machine":
        return engine.machine(s.rng, avoid, taken, kinds)
    if sort == "worker":
        return engine.worker(s.rng, avoid)
    return engine.relative(s.rng, avoid)


def grown_up(s, key="G"):
    s.cast[key] = engine.relative(s.rng, s.cast["A"].pronoun)


def thing(s, key="o", only=None):
    """Words o (noun), fo (with adjective), use (what it is for)."""
    noun = s.pick(only or list(lex.THINGS))
    adjectives, use = lex.THINGS[noun]
    adjective = s.pick(lex.COLORS) if s.chance(0.5) else s.pick(adjectives.split())
    s.words[key], s.words["f" + key], s.words["use"] = noun, f"{adjective} {noun}", use


def spots(s, *keys):
    for key, spot in zip(keys, s.rng.sample(lex.SPOTS, len(keys))):
        s.words[key] = spot


def animals_met(s, *keys):
    """Unnamed animals that the hero meets."""
    taken = [c.kind for c in s.cast.values()]
    for key in keys:
        s.cast[key] = engine.animal(s.rng, s.cast["A"].pronoun, taken, named=0)
        taken.append(s.cast[key].kind)


def opening(s):
    """Introduces the hero; afterwards the words place, habit, weather and day are set."""
    a = s.cast["A"]
    wild = not a.is_child and a.kind in lex.ANIMALS
    s.set(place=s.pick(lex.WILD if wild and s.chance(0.7) else lex.PLACES), habit=s.pick(HABITS), weather=s.pick(lex.SKY))
    s.set(day="[morning|morning|afternoon|day|summer day|spring morning|sunny day|autumn afternoon|Monday|Saturday|bright morning|warm day]")
    if a.name and s.chance(0.35):
        a.adjective = None
    s.say("""Once upon a time, there was a {A.intro}. {a} lived in {place}.
        Once upon a time, there was a {A.intro}. {a} {habit}.
        Once upon a time, a {A.intro} lived in {place}.
        Once upon a time, in {place}, there lived a {A.intro}.
        Once upon a time there was a {A.intro} who {habit}.
        Once upon a time there lived a {A.intro} who {habit}.
        In {place} there lived a {A.intro}.
        In {place}, there was a {A.intro} who {habit}.
        There was [once |]a {A.intro} who {habit}.
        There was a {A.intro} who lived in {place}.
        Long ago, in {place}, there lived a {A.intro}.
        Not so long ago, a {A.intro} lived in {place}.
        Far away, in {place}, lived a {A.intro}.
        A {A.intro} lived in {place}.""" if s.chance(0.62) else named_openings(s, a))
    s.set(habit2=s.pick(HABITS))
    if s.words["habit2"][:5] != s.words["habit"][:5]:
        s.maybe(0.4, """{a} {habit2}.
            Everyone knew {a.o}, because {A.he} {habit2}.
            {a} was happy there.
            [It was|It really was] a good place to live.
            {a} {habit2}, and everybody liked {A.him}.
            Most days were quiet, and {a} liked that.
            The neighbors said that {a} [was a good soul|had a kind heart|would go far one day].""")


def named_openings(s, a):
    if a.name is None:
        return """One {day}, a {A.intro} [sat|was sitting] in the sun and looked at the sky. {weather}.
            It was a [rainy|sunny|cold|windy|quiet|warm] [morning|day|afternoon] when a {A.intro} woke up [early|with a new idea|very hungry|in a good mood].
            The {A.intro} lived in {place}. {a} {habit}.
            The {A.intro} {habit}. Everyone in {place} knew that.
            The {A.intro} woke up early. {weather}.
            On a [cold|warm|bright|gray|windy] [morning|afternoon], a {A.intro} left the {A.home} and looked around.
            Every morning, the {A.intro} came out of the {A.home} to greet the sun."""
    return """One {day}, a {A.intro} [was out for a walk|was playing outside|woke up early|looked out of the window]. {weather}.
        It was a [rainy|sunny|cold|windy|quiet|warm] [morning|day|afternoon] when {A.name} woke up [early|with a new idea|very hungry|in a good mood]. {A.name} was a {A.kind} who {habit}.
        {A.name} was a {A.kind} who {habit}.
        {A.name} was a {A.kind} who lived in {place}.
        {A.name} the {A.kind} lived in {place}. {a} {habit}.
        {A.name} lived in {place}. {a} was a {A.kind} who {habit}.
        Every morning, {A.name} the {A.kind} opened the window and said good morning to the world.
        {A.name} {habit}. {a} was [only |just |]a {A.kind}, but {a.he} had big plans.
        On a [cold|warm|bright|gray|windy] [morning|afternoon], {A.name} the {A.kind} looked up at the sky. {weather}.
        This is the story of {A.name}, a {A.kind} who {habit}."""


def one_day(s):
    """Moves from the introduction to the day on which it all happens."""
    if s.chance(0.35):
        s.paragraph()


def day(s):
    """An opening adverb for the first event; set as word `Day`."""
    s.set(Day="[One {day}|One day|One {day}|That day|Early one morning|One evening|Late one afternoon|On the first day of [spring|summer|autumn]|One windy day]")


def ending(s, moral=""):
    """Closes the story: a feeling, perhaps what was learnt, perhaps an end line."""
    if moral and s.chance(0.75):
        s.say(moral)
    away = """
        {a} [smiled|laughed|was happy] all the way home.
        {a} went home [happy and tired|with a warm heart|just before dark|singing a little song].
        Then they all went home, [tired but happy|talking and laughing|and the moon showed them the way]."""
    s.say("""[That night|That evening], {a} [fell asleep with a smile|slept very well|was tired but happy|lay in bed and thought about the day].
        It had been a [good|wonderful|long|very special] day, and {a} [would never forget it|was glad|knew it].
        And when the stars came out, {a} was [still smiling|fast asleep|at home, warm and safe].
        From that day on, {a} [was never sad for long|told this story to everyone who would listen|had one more reason to smile].
        And from then on, every day was a little brighter.
        And {a} lived happily for many years.
        "What a day!" said {A}, and [yawned|laughed|smiled|closed {A.his} eyes].
        The sun went down, and everything was quiet and good.
        {a} looked up at the [moon|stars|evening sky] and [smiled|felt at peace|said thank you].
        Then it was time for [supper|bed|dinner], and nobody was late.""" + ("" if s.at_home else away))
    s.maybe(0.25, """The end.
        And that is the end of the story.
        And they all lived happily ever after.
        And if you go there today, you may [still see them|hear them laugh].
        And that is how it was.""")


def supper(s):
    s.set(meal=s.pick(lex.FOODS))
    s.maybe(0.5, """They ate {meal} together.
        Afterwards everyone had {meal}.
        To celebrate, they shared {meal}.
        They sat down and ate {meal} until they were full.
        In the evening they had {meal}.""")


def sad(s):
    s.say("""{a} felt [very |]sad.
        {a} wanted to cry.
        A [big|small] tear ran down {a.p} face.
        {a} sat down and [sighed|did not know what to do|began to cry].
        {a.p} heart [sank|felt heavy].
        "[Oh no|Oh dear]," {a} whispered.
        "What shall I do now?" {a} said [quietly|softly].""")


def glad(s):
    s.say("""{a} was so happy that {a.he} [danced|jumped up and down|laughed out loud|sang].
        {a} [beamed|smiled from ear to ear|clapped and cheered|could hardly believe it].
        {a.p} heart [jumped for joy|felt light again|was full].
        "[Hooray|Yes|At last|Wonderful]!" [cried|shouted|called] {a}.
        What a [joy|relief|happy moment] that was!
        {a} had never been so [happy|glad|proud] before.""")


def thanks(s):
    """A thanks B."""
    s.say(""""[Thank you|Thank you so much|Thank you for your help|You are a true friend]!" said {A}.
        "[Thank you|Thank you so much|I will never forget this|You are a good friend]," said {A}. "[It was nothing|You are welcome|Any time|That is what friends are for]," said {B}.
        {A} thanked {b.o} [again and again|with a big hug|with all {A.his} heart].
        {A} hugged {B} and thanked {b.o}.
        "I could not have done it without you," {A} told {B}.""")
