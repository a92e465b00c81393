"""Plots: a lie, a soup, a winter, the moon, snow, a treasure, an echo, a butterfly, a journey."""

from common import animals_met, cast, ending, glad, grown_up, one_day, opening, sad, spots, supper, thanks


def false_alarm(s):
    cast(s, "child animal", "worker animal")
    opening(s)
    one_day(s)
    s.pair(("danger", "real"), """a wolf / the wolf
        a fire / the fire
        a flood / the water
        a big bear / the bear
        a storm / the storm""")
    s.say("""{A} was often bored. One {day}, {A.he} had a silly idea. "Help! There is {danger}!" {A.he} shouted.
        One {day}, {A} wanted to play a trick on the others. "Help!" {A.he} cried. "There is {danger}!"
        "What would happen if I called for help?" thought {A} one {day}. And {A.he} shouted, "Come quickly! There is {danger}!"
        """)
    s.set(bi="{B.name} the {B.kind}" if s.cast["B"].name else "a {B.intro}")
    s.say("""{bi} dropped everything and came running. But there was nothing at all. {A} laughed and laughed.
        {bi} came running as fast as possible. But there was nothing to see. "It was only a joke," said {A}.
        All the neighbors came with sticks and buckets, and {bi} came first of all. {A} rolled on the ground with laughter.""")
    s.say("""The next day, {A} did it again. "There is {danger}!" {A.he} called. Again they all came, and again there was nothing.
        A few days later, {a} did the same thing. Once more they came running, and once more {A.he} laughed.
        Because it had been such fun, {A} did it a second time. This time, nobody thought it was funny.""")
    s.say(""""If you lie, nobody will believe you when you tell the truth," said {B}.
        "[That is not funny|One day you will need us]," said {B}, and went away angrily.""")
    s.paragraph()
    s.say("""Then, one evening, it really happened. There was {danger}. "Help!" cried {A}. "This time it is true!" But nobody came.
        But a week later, {real} really came. {A} screamed for help. "There {A.he} goes again," people said, and stayed at home.
        One night, {A} woke up. There really was {danger}! {A} called and called, but nobody believed {A.him}.""")
    s.say("""Only {B} thought, "And what if it is true?" So {B.he} came, just in time, and brought {A} to a safe place.
        {A} had to run for {A.his} life, all alone. In the morning, {B} found {A.him}, tired and cold.
        {A} ran to {B} and knocked on the door with tears in {A.his} eyes. {B} looked at {A.him} for a long time. Then {B.he} took a lamp and called the others.""")
    s.say(""""I am sorry," said {A}. "I will never lie again."
        {A} was ashamed. "You were right," {A.he} said to {B}. "I have been a fool."
        "Why did nobody believe me?" asked {A}. "You know why," said {B} gently. And {A} knew.""")
    ending(s, """{a} never lied again, and little by little everyone began to trust {A.him}.
        Trust is like a glass. It breaks quickly, and it takes a long time to mend.
        If you want to be believed, you must tell the truth.""")


def soup(s):
    cast(s, "child animal animal relative", None)
    animals_met(s, "B", "C", "D")
    opening(s)
    one_day(s)
    s.pair(("dish", "one", "two", "three"), """soup / an onion / two carrots / a little salt
        a cake / an egg / a cup of flour / a bit of honey
        a pie / five apples / some butter / a spoon of sugar
        a stew / a turnip / three potatoes / a bunch of herbs
        pancakes / some milk / two eggs / a jar of jam
        a salad / a cucumber / a head of lettuce / a ripe tomato""")
    s.say("""One cold evening, {A} wanted to make {dish}. But the kitchen was empty. There was only a pot and some water.
        One {day}, {A} was hungry for {dish}. But when {A.he} looked on the shelf, there was almost nothing there.
        "Today I will make {dish}," said {A} one {day}. But something was missing. In fact, almost everything was missing.""")
    s.say("""So {A} went to the neighbor, a {B.intro}. "Do you have {one}?" {A.he} asked. "[Yes|I do]," said {B}. "But what will you give me for it?" "You can eat with me," said {A}.
        {A} knocked at the door of a {B.intro}. "May I borrow {one}?" {A.he} asked. "[Take it|Of course|With pleasure]," said {B}. "May I come and eat with you?" "Yes, please do," said {A}.""")
    s.say("""Next door lived a {C.intro}. {C} had {two}, and was glad to come along.
        Then they met a {C.intro}. "[What smells so good|Where are you going]?" asked {C}. "We are making {dish}. Come with us!" said {A}. So {C} brought {two}.
        On the corner stood a {C.intro}, who had {two} and nobody to eat with. "Come with us," said {A}.""")
    s.maybe(0.7, """But something was still missing. "I have {three}," said a small voice. It was a {D.intro}.
        "Now we only need {three}," said {A}. Just then a {D.intro} came in with {three}.
        A {D.intro} had heard the news and brought {three}.""")
    s.say("""They washed and cut and stirred. Soon it smelled wonderful.
        One cut, one stirred, and one tasted. "[Mmm|Not yet|A little more]," they said.
        The fire crackled, the pot bubbled, and they all sang a song.""")
    s.maybe(0.5, """Once it nearly burned, because they were laughing so much.
        {B} wanted to taste it all the time, and soon {B.he} had some of it on {B.his} nose.
        "Be careful, it is hot," said {A}.""")
    s.say("""Then they sat down at one table. It was the best meal they had ever had.
        They ate until the last bit was gone. Nobody had ever tasted anything so good.
        When it was ready, there was enough for all of them, and even for a poor traveler who came by.""")
    s.say(""""It is strange," said {A}. "This morning I had nothing, and now I have everything."
        "Why does it taste so good?" asked {C}. "Because there is something from each of us in it," said {A}.
        "Let us do this every week," said {B}, and the others clapped.""")
    s.at_home = True
    ending(s, """If everyone gives a little, there is enough for all.
        {a} had learned that a meal tastes best with friends.
        A full table begins with an open door.""")


def winter(s):
    cast(s, "animal", "animal", ["grasshopper", "butterfly", "crow", "frog", "squirrel", "monkey", "sparrow"], ["ant", "ant", "ant", "mouse", "bee", "hamster", "mole", "beetle", "squirrel"])
    opening(s)
    one_day(s)
    s.say("""All summer long, {A} worked. {a} carried food home, one piece after the other.
        It was summer, and {A} was busy from morning till night. {a} gathered food for the winter.
        Every day of the summer, {A} went out and came back with food for the winter.""")
    s.say("""A {B.intro} sat in the sun and [sang|played the fiddle|laughed]. "Why do you work so hard?" asked {B}. "[The winter is far away|The sun is shining|Come and dance with me]."
        A {B.intro} shook {B.his} head. "[Summer is made for singing|You are always working]," said {B}. "Come and sing with me!\"
        """)
    s.say(""""The winter will come," said {A}, "and then I will be glad to have something to eat."
        "[I have no time|Not now]," said {A}. "You should gather some food, too." But {B} only laughed.
        {A} wiped {A.his} face. "The snow does not ask if we are ready," {A.he} said.""")
    s.say("""Then autumn came, and the leaves fell. And one morning, everything was white.
        The days grew short and cold. The wind took the last leaves, and then it began to snow.
        Winter came early that year. The ground was frozen, and there was nothing to eat outside.""")
    s.say("""{A} sat at home, where it was warm, and there was plenty to eat. Then there was a knock at the door.
        One evening, somebody knocked at {A}'s door, very softly.
        {A} looked out of the window. Somebody was coming through the snow.""")
    s.say("""It was {B}, cold and hungry. "[Please help me|I have nothing to eat]," {B.he} said. "[You were right|I should have listened to you]."
        There stood {B}, shaking with cold. "I sang all summer," {B.he} said quietly, "and now I am hungry.\"
        """)
    s.say("""{A} thought about the long summer. Then {A.he} opened the door wide. "[Come in|Sit down by the fire]," {A.he} said. "There is enough for two."
        "Come in, before you freeze," said {A}, and gave {B.him} a bowl of hot soup.
        {A} did not laugh at {B.him}. "Come in," {A.he} said. "You can pay me with your songs.\"
        """)
    s.say("""All winter long, {B} sang for {A}, and the dark evenings were short and merry.
        {B} told stories and sang songs, and {A} had never had such a merry winter.
        And when the spring came, {B} was the first to get up and work. In the evening they sang together.""")
    ending(s, """{B} had learned to think of tomorrow, and {A} had learned to sing.
        It is good to work, and it is good to sing. It is best to do both.
        Whoever shares has twice as much.""")


def moon(s):
    cast(s, "child animal", "relative animal")
    b = s.cast["B"]
    s.set(bi="{A.his} {B.kind}" if b.name and b.name.lower() == b.kind else "a {B.intro}")
    opening(s)
    one_day(s)
    s.say("""One night, {A} looked up at the moon. "I want to have it," {A.he} said.
        Every night, {A} looked at the moon. It was so round and so bright. "If only I could touch it," {A.he} thought.
        One clear night, the moon hung low over the trees. "I could almost reach it," thought {A}.""")
    s.say("""{a} climbed the highest tree and stretched as far as {A.he} could. But the moon was still too far away.
        So {a} climbed to the top of the hill. But from there the moon was just as far away.
        First {a} jumped as high as {A.he} could. Then {A.he} stood on a chair, and then on a table. It was no use.""")
    s.say("""Then {a} saw the moon in the pond. "It has fallen into the water!" {A.he} cried, and took a net. But there was only water in the net.
        Then {a} took a long ladder. But even the longest ladder was too short.
        Then {a} had another idea. {a} set out a bucket of water, and there was the moon, right in the middle. But when {a} touched it, it broke into a hundred pieces.""")
    sad(s)
    s.say("""{bi} had watched {A.him}. "Why do you want to have the moon?" asked {B}. "Because it is so beautiful," said {A}.
        "What are you doing?" asked {bi}. "I want to catch the moon," said {A}.""")
    s.say(""""Look around," said {B}. "It shines on the trees, and on the water, and on you. If you put it in a box, it would be dark for everyone."
        {B} smiled. "The moon belongs to everyone," {B.he} said. "That is why it hangs so high."
        "Some things are there to be looked at," said {B}, "and not to be owned.\"
        """)
    s.say("""{A} thought about it. Then {A.he} sat down beside {B}, and they looked at the moon together.
        So they sat side by side in the silver light, and it was very quiet.
        "Then I will come and look at it every night," said {A}. And {B} nodded.""")
    ending(s, """{a} had learned that [not everything beautiful has to be yours|the most beautiful things belong to everyone].
        And whenever the moon was round, {A} waved at it. And sometimes it seemed to wave back.
        "Good night, moon," said {A}.""")


def snow(s):
    cast(s, "child child animal", "child animal")
    opening(s)
    one_day(s)
    s.say("""One winter morning, everything was white. "[Snow|It has snowed]!" cried {A}, and ran outside.
        In the night it had snowed. When {A} opened the door, the whole world was white and silent.
        All week, {A} had waited for snow. And then, one morning, big flakes were falling from the sky.""")
    s.say("""There was a {B.intro} outside, too. "Shall we build a snowman?" asked {B}. "Yes!" said {A}.
        Soon a {B.intro} came out of the next house. They threw snowballs, and then they began to build a snowman.
        {A} called {A.his} friend, a {B.intro}, and together they began to build a snowman.""")
    s.say("""They rolled three balls, a big one, a smaller one, and a very small one. For the nose they took a [carrot|pine cone], and for the eyes two [buttons|pieces of coal|stones].
        The snowman was round and tall. He had a carrot for a nose, and {A} gave him an old hat.
        It took all morning. Then the snowman stood there, with stones for eyes and a smile made of little sticks.""")
    s.pair(("trouble", "help"), """"He must be cold," said {B} / They gave him a scarf, and he looked much happier
        But in the night a hungry rabbit ate the nose / They were not angry. They gave the rabbit another carrot, and the snowman got a new nose
        But then the wind blew his hat away / They ran after it, over the field and down the hill, until {A} caught it
        "He is all alone," said {A} / So they built a second snowman, right beside him
        Then the sun came out, and the snowman began to melt / They built a little roof of branches over him, so that he stood in the shade
        But {A} got cold, and {A.his} nose turned blue / {B} gave {A.him} a warm scarf, and they went in to drink hot chocolate""")
    s.say("{trouble}. {help}.")
    s.maybe(0.6, """In the afternoon, they rode down the hill on a sled, again and again.
        They lay down in the snow and made snow angels.
        The snow creaked under their feet, and their breath looked like smoke.""")
    supper(s)
    s.maybe(0.6, """In the spring, the snowman was gone. Only the hat was left. "He will come back next winter," said {B}.
        When it got dark, the snowman stood in the moonlight and seemed to smile.
        Before going to bed, {A} looked out of the window once more. "Good night, snowman," {A.he} said.""")
    ending(s, """[Snow melts, but friends stay|The best thing about the cold is to get warm again].
        {a} hoped that the winter would be long.""")


def treasure(s):
    cast(s, "child child animal", "child animal")
    opening(s)
    one_day(s)
    spots(s, "x")
    s.say("""One {day}, {A} found an old map {x}. There was a red cross on it.
        One {day}, {A} found a piece of paper {x}. It was a map!
        Inside an old book, {A} found a yellow map. In the middle there was a big red cross.""")
    s.say(""""A treasure!" said {A}, and ran to {A.his} friend, a {B.intro}. They set off at once.
        {A} showed it to a {B.intro}. "[That must be a treasure|Let us find it]," said {B}, and so they set off together.""")
    s.say("""First they had to go [over the old bridge|through the dark forest|along the river]. {B} was a little afraid, but {A} went first.
        The map said: ten steps to the big oak, and then straight on to the stream. They counted every step.
        They walked past the mill, up the hill, and down the other side.""")
    s.say("""Then they came to a wide stream. "How do we get across?" asked {B}. They looked for a fallen tree and balanced over it.
        Suddenly the path divided in two. "Left or right?" asked {A}. They looked at the map and went left. It was the right way.
        Then it began to rain, and the map got wet. Luckily, {A} remembered the way.
        Then {B} slipped and hurt {B.his} foot. {A} helped {B.him} up, and they went on slowly, side by side.""")
    s.say("""At last they stood before [an old tree|a big gray stone|a small cave]. This was the place! They dug and dug, until they hit something hard.
        There it was, the place with the red cross. {A} dug with a stick, and {B} dug with a stone. Clunk!""")
    s.pair(("inside", "then"), """It was a box, and in the box there was no gold, but a note. "The real treasure is the friend beside you," it said / They looked at each other and laughed
        In the box there were a hundred glass marbles, in all colors / They divided them fairly, fifty for each
        Inside were old toys that someone had hidden long ago / They cleaned them and gave them to the little ones
        In the box lay a golden key and nothing else / "Then we have to go on looking," said {A}, and their eyes shone
        It was a jar full of old coins / They used them to buy a new roof for the school
        In the box there was a packet of seeds. "Plant me," it said / They planted them, and in the summer there was a whole field of flowers
        It was a bottle of the best apple juice, and two cups / They drank it in the shade and were very pleased""")
    s.say("{inside}. {then}.")
    glad(s)
    ending(s, """The way there was the best part.
        {a} had learned that an adventure is only half as good alone.
        "Tomorrow we will look for the next one," said {B}.""")


def butterfly(s):
    cast(s, "child child animal", "relative worker")
    b = s.cast["B"]
    s.set(bi="{A.his} {B.kind}" if b.name and b.name.lower() == b.kind else "a {B.intro}")
    opening(s)
    one_day(s)
    s.say("""One {day}, {A} found a green caterpillar on a leaf. {a} watched it eat.
        One {day}, a small caterpillar crawled over {A}'s path. "Hello, little one," said {A}.""")
    s.say("""Every day {a} brought it fresh leaves, and it grew fatter and fatter.
        "It is always hungry," said {A}, and gave it the best leaves.""")
    s.say("""Then, one morning, the caterpillar was gone. A little brown thing was hanging from the branch.
        But one day it stopped eating. It made itself a small brown bed and closed the door.""")
    s.say(""""Where is my caterpillar?" asked {A}. "It is asleep in there," said {bi}. "Wait and see."
        {A} ran to {bi}. "It is gone!" {A.he} cried. "No," said {B}. "It is changing. You must be patient.\"
        """)
    s.say("""{A} waited. It rained, and the sun came out, and it rained again.
        {A} wanted to open it and look inside. "Do not do that," said {B}. "It must come out by itself, or it will never be strong."
        Every morning {A} ran to look. Every morning it was the same.""")
    s.words["wings"] = s.pick(["blue as the sky", "yellow as the sun", "white as snow"])
    s.say("""Then, one warm morning, it began to move. A butterfly came out, with wings as {wings}.
        And one day it opened with a tiny crack. Out came a butterfly! Its wings were still wet.""")
    s.say("""It sat on the branch beside {A} for a moment. Then it flew away over the roofs.
        It opened its wings and closed them again. Then it rose into the air, once around {A}'s head, and away.""")
    s.say("""{A} was a little sad, and very happy at the same time.
        "Goodbye!" called {A}. "Come back soon!\"
        """)
    ending(s, """And in the summer, there were many butterflies, and one of them always flew close to {A}.
        {a} had learned that some things cannot be hurried.
        "Everything changes," said {B}, "and often it becomes more beautiful.\"
        """)


def journey(s):
    cast(s, "child animal", "worker animal")
    opening(s)
    one_day(s)
    grown_up(s)
    s.pair(("by", "stop"), """train / station
        bus / stop
        boat / harbor""")
    s.set(goal="[the big city|the sea|the mountains|a small island|the other side of the country]")
    s.say("""One {day}, {A} wanted to visit {A.his} {G.kind}, who lived far away. {a} packed a bag and took the {by}.
        {A}'s {G.kind} lived far away. One {day}, {A} took the {by} to go there, all alone for the first time.""")
    s.say("""{a} looked out of the window. There were [cows|hills|boats|fields] and [bridges|trees|little houses].
        The {by} went on and on. {a} counted the [trees|birds|clouds], until {A.his} eyes closed.""")
    s.say("""{a} fell asleep. When {A.he} woke up, everything looked strange. {a} had missed the {stop}!
        But {A} got off at the wrong {stop}. The {by} was already gone.
        In the noise and the crowd, {A} lost {A.his} bag. All the food was in it, and the letter with the address, too.""")
    sad(s)
    s.say("""A {B.intro} saw {A.him} and came over. "[Are you lost|Can I help you]?" asked {B}.
        "Do not cry," said a {B.intro}. "Tell me what happened.\"
        """)
    s.say("""{A} told {B} everything. "That is not so bad," said {B}. "[I know the way|We will find a way|I am going there, too]. Come with me."
        When {A} had told the story, {B} nodded. "The same thing happened to me once," {B.he} said. "I will bring you there.\"
        """)
    s.say("""They walked through the [narrow streets|fields|woods], and {B} told funny stories on the way.
        {B} shared a piece of bread with {A.him}, and they waited for the next {by} together.
        Together they asked here and there, until they found the right way.""")
    s.say("""In the evening, they stood in front of the right door. The {G.kind} was already waiting. "At last!" said a happy voice.
        There, at the end of the road, was a light in a window. It was the right house!
        At the last {stop} somebody was waving. It was {A}'s {G.kind}!""")
    thanks(s)
    supper(s)
    ending(s, """{a} had learned that there are good people on every road.
        Whoever travels meets friends.
        "The best part of the journey was getting lost," said {A}.""")
