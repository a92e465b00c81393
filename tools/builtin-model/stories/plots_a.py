"""Plots: things lost, friends in need, small heroes, sharing, fear, learning."""

from common import (animals_met, cast, day, ending, glad, grown_up, one_day, opening, sad, spots, supper, thanks, thing)


def lost_thing(s):
    cast(s, "child child animal", "child animal animal")
    thing(s)
    spots(s, "x", "y", "z")
    opening(s)
    s.say("""{A} had a {fo}. {a} liked to {use}.
        {a.p} favorite thing was a {fo}. {a} liked to {use}.
        For {A.his} birthday, {A} had been given a {fo}. Every day {a.he} would {use}.
        {a} owned only one treasure: a {fo}. {a} could {use} for hours.
        More than anything, {A} loved {A.his} {fo}. It was the best thing in the world to {use}.""")
    one_day(s)
    day(s)
    s.say("""{Day}, {A} wanted to {use}, but the {o} was gone.
        {Day}, the {o} was not in its place. {A} looked twice, but it was gone.
        But one morning, {a} could not find the {o} anywhere.
        {Day}, {A} came home and saw that the {o} was missing.
        "Where is my {o}?" cried {A} one morning. It was not where {A.he} had left it.""")
    sad(s)
    s.say("""{a} looked {x}, but [there was nothing|it was not there|found only dust|found only an old sock].
        First {a} searched {x}. [Nothing|No luck]!
        {a} ran and looked {x}. The {o} was not there.""")
    s.maybe(0.7, """Then {a} looked {y}. [Nothing there either|It was not there either|There was only a sleepy cat].
        Next {a} searched {y}, but the {o} was not there either.
        {a} even looked {y}, but no, it was not there.""")
    s.paragraph()
    s.say("""Just then, a {B.intro} came along.
        Then a {B.intro} came by.
        At that moment, a {B.intro} [came down the path|walked past|looked around the corner].
        A {B.intro} heard {A.him} and came closer.""")
    s.say(""""[What is wrong|Why are you so sad|What happened|What are you looking for]?" asked {B}. "I have lost my {fo}," said {A}.
        "[Why do you look so unhappy|Can I help you|Is something the matter]?" asked {B}. "My {o} is gone," said {A}. "I have looked everywhere."
        {B} asked what was wrong, and {A} told {b.o} about the {o}.""")
    s.say(""""[Let us look together|I will help you|Four eyes see more than two|Do not worry, we will find it]," said {B}.
        "When did you see it last?" asked {B}. {A} thought hard. "Yesterday, when I was {z}," {A.he} said.
        {B} did not think twice. "I will help you look," {B.he} said.
        "Think," said {B}. "Where were you yesterday?" "I was {z}," said {A} slowly.""")
    s.say("""They went to look {z}, and there it was!
        Together they searched for a long time, and at last they looked {z}. There was the {o}!
        {B} pointed. Something [bright|small] was lying {z}. It was the {o}!
        And really, {z} they found the {o}. It was a little dirty, but it was not broken.""")
    glad(s)
    thanks(s)
    s.say("""After that, they went out to {use} together.
        {a} let {B} hold the {o} all the way home.
        "Now we can {use}," said {A}, and so they did.
        From then on, {A} always put the {o} back in its place.
        {a} promised to take better care of the {o}.""")
    ending(s, """{a} had found the {o}, and a friend as well. That was even better.
        "[I was looking for a thing and I found a friend|It is easier to search with a friend]," thought {A}.
        A friend who helps you look is worth more than any {o}.
        {a} had learned to put things back where they belong.""")


def stuck(s):
    cast(s, "animal animal child", "animal")
    animals_met(s, "C")
    opening(s)
    one_day(s)
    day(s)
    s.pair(("where", "pull", "fail", "work"), """in a deep hole / climb out / {a} reached down, but the hole was too deep / {a} found a long branch and put it into the hole like a ladder
        in the thick mud / pull free / {a} pulled as hard as {he} could, but the mud was too strong / {a} laid some flat pieces of wood on the mud, and step by step it was possible to walk out
        in a thorn bush / get loose / {a} tried to push the thorns away, but they were too sharp / {a} bent the branches back with a stick, one by one
        in an old net / get loose / {a} pulled at the net, but it only became tighter / {a} found a sharp stone and cut the strings, one by one
        under a fallen branch / crawl out / {a} tried to lift the branch, but it was far too heavy / {a} pushed a long stick under the branch and used a stone to lift it
        between two rocks / get out / {a} pushed at the rocks, but they did not move / {a} poured some water between the rocks to make them slippery
        at the bottom of a dry well / climb up / {a} called for help, but nobody heard / {a} tied a rope to a tree and let it down
        on a rock in the middle of the stream / come back to land / {a} wanted to jump over, but the water was too wide / {a} rolled big stones into the stream and made a path""")
    s.set(snack="[berries|nuts|mushrooms|flowers|firewood]")
    s.say("""{Day}, {A} was [walking through the woods|on the way home|looking for {snack}|going for a walk] when {a.he} heard a [small|thin|sad|weak] voice. "[Help|Help me|Please help me|Is anybody there]!" it [called|cried].
        {Day}, {A} heard a strange sound. {a} stopped and listened. "Help!" cried a small voice.
        {Day}, {A} [went out|set off] to find some {snack}. Suddenly someone [called|cried]: "Help! Help!"
        """)
    s.say("""{a} followed the voice and found a {B.intro}. {B.he} was stuck {where}.
        It was a {B.intro}, who was stuck {where}.
        {a} looked around and saw a {B.intro} {where}.""")
    s.say(""""[How did you get there|What happened to you]?" asked {A}. "I [did not look where I was going|was chasing a butterfly|was in a hurry|fell]," said {B}, "and now I cannot {pull}."
        "I cannot {pull}," said {B}. "[I have been here all night|I am so tired|I am afraid|Nobody hears me]."
        "Please do not go away," said {B}. "I cannot {pull} alone.\"""")
    s.say(""""[Do not be afraid|Do not worry|Stay calm|Be brave]," said {A}. "I will help you."
        {a} [did not wait|did not think long]. "I will get you out," {a.he} said.
        {a} [was small|was a little afraid], but {a.he} wanted to help.""")
    s.say("First {fail}.\nAt first it did not go well: {fail}.")
    s.maybe(0.5, """"We need a better idea," said {A}, and [sat down to think|thought hard].
        {a} did not give up. {a} [sat down and thought|looked around carefully].
        Then a {C.intro} came to see what was going on. "Use your head," said {C}.
        {a} took a deep breath and tried to think.""")
    s.set(act="{work}")
    s.say("Then {act}.\nThen there was a new idea: {act}.\nBut then {act}.\nThe next try was better: {act}.")
    s.say("""At last {B} was free.
        It took a long time, but in the end {B} was free.
        One more try, and {B} was free!
        "Now!" called {A}, and {B} was free at last.""")
    s.say(""""[Thank you|You saved me|I will never forget this]!" said {B}. "[If you ever need help, call me|One day I will help you, too]."
        {B} [shook {B.self}|laughed|took a deep breath] and thanked {A}.
        {B} was so glad that {B.he} could not say a word. {B.he} only hugged {A}.""")
    if s.chance(0.5):
        s.paragraph()
        s.pair(("trouble", "help"), """{A} lost the way in the fog / {B} came and showed {A.him} the path home
            a storm broke the roof of {A}'s home / {B} brought dry straw and helped to mend it
            {A} was ill and could not go out / {B} came every day with soup and stories
            {A} had nothing left to eat / {B} came with a basket full of food
            {A} fell into the stream / {B} held out a stick and pulled {A.him} out
            {A} could not carry the firewood alone / {B} came and carried half of it""")
        s.say("""[A few days|Some weeks|A month] later, {trouble}. Then {help}.
            Not long after, {trouble}. But {help}.
            In the winter, {trouble}. Then {help}.""")
        s.say(""""You helped me, and now I help you," said {B}.
            "Now we are even," said {B} with a smile.
            "That is what friends do," said {B}.""")
    ending(s, """[Those who help others are never alone|A good deed comes back|Even a small helper can do great things|Kindness is never lost].
        And so the two became [good|best] friends.
        {a} had learned that [a good idea is stronger than strong arms|it is worth trying twice|kindness comes back].""")


def heavy_crumb(s):
    cast(s, "animal", "animal", ["ant", "beetle", "ladybug", "bee", "grasshopper", "snail", "spider", "mouse", "worm"], ["ant", "ant", "ant", "ant", "beetle", "mouse"])
    s.pair(("load", "part"), """a big crumb of bread / crumb
        a sweet red berry / berry
        a large piece of cake / cake
        a round yellow seed / seed
        a fat brown nut / nut
        a piece of golden cheese / cheese
        a drop of honey on a leaf / honey
        a slice of apple / apple""")
    opening(s)
    one_day(s)
    day(s)
    s.say("""{Day}, {A} found {load}. It was [bigger than {A.he} was|ten times as big as {A.him}|very heavy].
        {Day}, {A} went out to look for food and found {load}.
        {Day}, {A} saw {load} lying on the path. "What luck!" said {A}.
        {Day}, {A} smelled something good. Behind a stone lay {load}.""")
    s.say(""""This will feed [all of us|my whole family|all my friends] for a week," {a} said.
        "I will bring it home for the winter," said {A}.
        "If I can bring this home, nobody will be hungry," thought {A}.
        {a.p} stomach growled, but {a.he} wanted to share it with the others.""")
    s.say("""{a} pulled and pushed, but the {part} did not move.
        {a} pushed with all {A.his} strength. The {part} moved only a little.
        {a} tried to lift the {part}, but it was too heavy.
        {a} pulled from the front and pushed from behind. It was no use.""")
    s.maybe(0.5, """{a} sat down [and wiped {A.his} face|to rest|and thought].
        The sun was hot, and {A} was [tired|thirsty].
        Dark clouds came, and {A} knew that it would rain soon.""")
    s.say("""Soon a {B.intro} came by. "[That looks heavy|You look tired]," said {B}.
        A {B.intro} [stopped|looked on] and [laughed|smiled]. "You will never move that alone," said {B}.
        Then a {B.intro} came along. "[May I help|Why do you work alone]?" asked {B}.""")
    if s.chance(0.4):
        s.say(""""No, thank you," said {A}. "I can do it alone." But {A.he} could not.
            {A} was too proud. "I do not need help," {A.he} said. So {A.he} pushed and pushed, until {A.he} fell over.
            At first {A} did not want any help. But after a while {A.he} said, "Please, help me." """)
    s.say(""""[Together we can do it|If you help me, I will share it with you|Let us try it together]," said {A}.
        "If we work together, we can do it," said {B}.
        They made a plan. {A} would pull, and {B} would push.""")
    s.say(""""One, two, three!" they called, and the {part} began to [roll|move|slide].
        They counted to three, and slowly, slowly the {part} began to move.
        Step by step they moved the {part} [over the grass|along the path|up the hill|around the big stone].
        First they rolled it over a stick. Then they carried it around a puddle.""")
    s.maybe(0.6, """On the way they came to a [puddle|small stream]. They laid a [leaf|stick] over it and went across.
        Halfway home, the wind nearly blew them over, but they held on tight.
        Once the {part} rolled back down the hill, and they had to start again. They only laughed.
        It began to rain, so they used a leaf as a roof and went on.""")
    s.say("""When the sun went down, they were home.
        At last they reached their home, [tired and happy|just before the rain].
        In the evening they stood in front of their home. They had done it!""")
    s.say("""Everyone came out to see the {part}. "[How did you do that|Who carried this]?" they asked. "We did it together," said {A}.
        {A} [cut|divided] the {part} into two halves. "One half for you, and one half for us," {a.he} said to {B}.
        There was enough for everyone, and nobody went to bed hungry.
        They shared the {part} and told each other stories until late at night.""")
    ending(s, """What one cannot carry, two can carry easily.
        "[Alone I am small, but together we are strong|Two are stronger than one]," said {A}.
        {a} had learned that it is good to ask for help.
        Since that day, {A} and {B} have always worked together.
        Many small steps make a long way.""")


def rainy_day(s):
    s.at_home = True
    cast(s, "child child animal", "child animal")
    grown_up(s)
    s.pair(("plan", "wet"), """go to the [beach|lake] / sand
        have a picnic on the hill / grass
        play ball in the meadow / grass
        fly a kite / sky
        visit the market / street
        ride to the forest / path
        swim in the river / water""")
    opening(s)
    one_day(s)
    s.say("""{A} had a plan. {a} wanted to {plan} with {A.his} best friend, a {B.intro}.
        All week, {A} had waited for this day. Together with {A.his} friend, a {B.intro}, {a.he} wanted to {plan}.
        {A} had a good friend, a {B.intro}. The two of them wanted to {plan}.""")
    s.say("""But when they [opened the door|looked outside|were ready to go], it began to rain.
        But in the morning, gray clouds hung over the roofs, and soon it was raining.
        Then they heard it: drip, drop, drip, drop. It was raining.
        But the sky was dark, and the rain was falling on the [roof|garden].""")
    s.say(""""[Oh no|What bad luck]," said {A}. "Now we cannot {plan}."
        {B} looked out of the window and [sighed|made a long face]. "It will never stop," {B.he} said.
        "The whole day is ruined," said {A}.""")
    s.pair(("idea", "did", "proud"), """build a house out of blankets / They hung blankets over the table and put pillows inside / It was the best house in the world
        bake a cake / They stirred flour, eggs, and milk, and soon the kitchen smelled wonderful / The cake was a little crooked, but it tasted good
        put on a play / They made crowns out of paper and a curtain out of an old sheet / Everyone clapped at the end
        paint a big picture / They painted the sun, a house, and a long blue river / The picture was so bright that the room seemed warmer
        make boats out of paper / They folded ten boats and let them sail in the puddle in front of the door / The smallest boat sailed the farthest
        jump in the puddles / They put on boots and coats, and ran out into the rain / Soon they were wet from head to toe, and they could not stop laughing
        look for old things in the attic / They found a dusty box full of hats, letters, and old photographs / They put on the hats and bowed to each other
        make music with pots and spoons / They hit the pots, they rang the glasses, and they sang / It was very loud and very funny
        tell stories by the fire / One of them began, and the other went on / The story had a giant, a shoe, and a talking fish""")
    s.say("""Then {G} came in. "[Rain is not a reason to be sad|Why the long faces|There is no bad weather for people with ideas]," {G.he} said. "You could {idea}."
        "I know!" cried {B}. "We can {idea}!"
        {A} thought for a while. "We could {idea}," {a.he} said at last.
        {G} smiled. "When I was little, we used to {idea} on rainy days," {G.he} said.""")
    s.say("{did}. {proud}.\n{did}.\nAnd so they did. {did}. {proud}.")
    s.maybe(0.5, """They [laughed|played] so much that they forgot the rain.
        "This is even better than our plan," said {B}.
        The time went by very quickly.
        Nobody thought about the rain any more.""")
    s.say("""When they looked up, the rain had stopped, and a rainbow stood over the [hill|roofs|garden].
        In the afternoon the sun came out. "Look, a rainbow!" [cried|shouted] {A}.
        Outside, the clouds went away, and everything [was shining|smelled fresh].
        It rained until the evening, but nobody minded.""")
    supper(s)
    ending(s, """"[I hope it rains again tomorrow|Rainy days are not so bad]," said {A}.
        {a} had learned that a rainy day can be a good day.
        Sometimes the best days are the ones you did not plan.""")


def sharing(s):
    cast(s, "child animal", "child animal")
    opening(s)
    day(s)
    one_day(s)
    s.pair(("it", "the", "use2"), """a swing in the old apple tree / swing / swing
        a sled behind the shed / sled / ride on it
        a red wagon by the road / wagon / pull it down the hill
        a big ball in the meadow / ball / play with it
        a small boat by the lake / boat / row it
        a ripe melon in the garden / melon / eat it
        a basket of strawberries / basket / have the strawberries
        a warm spot in the sun / spot / lie there
        a big cookie on a plate / cookie / eat it
        a box of paints / box / paint with it
        a soft red cushion / cushion / sit on it
        a long jump rope / rope / jump""")
    s.say("""{Day}, {A} and {A.his} [friend|neighbor], a {B.intro}, found {it}.
        {Day}, {A} found {it}. At the same moment, a {B.intro} saw it, too.
        {Day}, {A} was playing with a {B.intro}. Then they both saw {it}.""")
    s.say(""""[It is mine|I saw it first|Me first]!" [cried|shouted] {A}. "[No, it is mine|No, I saw it first|No, me first]!" [cried|shouted] {B}.
        "I want to {use2}!" said {A}. "No, I want to {use2}!" said {B}.
        {A} wanted to {use2}. But {B} wanted to {use2}, too.""")
    s.say("""They pulled and pushed and [shouted|grew angrier and angrier].
        They shouted so loudly that the birds flew away.
        Neither of them would let go.
        Soon they were both very angry. {A} stamped on the ground, and {B} turned away.""")
    s.pair(("oops",), """Then there was a loud crack, and they both fell into the mud
        Then they both lost their balance and sat down in a puddle
        In the end they both began to cry
        Then a strong wind came, and they both had to run for shelter
        In the end, nobody had any fun at all""")
    s.say("{oops}.")
    s.maybe(0.6, """For a while they did not say a word.
        They looked at each other. {A} had mud on {A.his} nose, and {B} had leaves on {B.his} head. They had to laugh.
        Now it was very quiet.
        {A} sat on one side, and {B} sat on the other. It was very boring.""")
    if s.chance(0.45):
        animals_met(s, "C")
        s.say("""An old {C.kind} had watched them. "[Why do you not take turns|Is it not big enough for two]?" asked {C}.
            "[How silly you are|Listen, you two]," said an old {C.kind}. "[If you share, you both win|There is enough for two].\"""")
    else:
        s.say(""""[I am sorry|This is silly]," said {A}. "[You can go first|We can share it|Let us take turns]."
            "[Let us not fight|I do not want to fight]," said {B}. "[First you, then me|Half for you and half for me]."
            {A} thought about it. "Half for you, and half for me," {A.he} said.""")
    s.say("""So they took turns, and [it was twice as much fun|they laughed a lot|nobody was angry any more].
        So they shared, and there was [more than enough|enough] for both.
        First {A} had a turn, and then {B}. And do you know what? It was much more fun with two.
        {B} smiled. "Yes," {B.he} said, and so they shared it.""")
    glad(s)
    supper(s)
    ending(s, """Sharing makes [a small thing big|everything better|two friends out of two strangers].
        {a} had learned to share.
        "A thing is only half as nice when you have it alone," said {A}.
        It is better to have half of something together than all of it alone.""")


def night_noise(s):
    s.at_home = True
    cast(s, "child child animal", "child animal")
    grown_up(s)
    opening(s)
    s.pair(("noise", "fancy", "truth"), """a scratching at the window / a monster with long claws / a branch of the old apple tree, moving in the wind
        a knocking at the door / a giant / a shutter that someone had forgotten to close
        a strange humming / a ghost / the old refrigerator in the kitchen
        a deep growling / a wild bear / only Grandfather, snoring in his chair
        a sound of soft steps in the hall / a thief / only the cat, looking for a warm place
        a loud squeak in the attic / a ghost / a family of mice having supper
        something tapping on the roof / an army of little men / only the rain
        a long howl / a wolf / the wind in the chimney
        a pair of green eyes in the dark / a dragon / the neighbor's cat on the wall
        a shadow on the wall / a huge spider / only a coat on a hook""")
    one_day(s)
    s.say("""{A} was afraid of the dark.
        There was one thing that {A} did not like, and that was the dark.
        By day, {A} was brave. But at night, everything was different.
        Every evening, when the light went out, {A} pulled the blanket up to {A.his} nose.""")
    s.say("""One night, {A} woke up. There was {noise}.
        One night, {a} could not sleep. Suddenly there was {noise}.
        It was late, and the moon was behind the clouds. Then there was {noise}.
        One dark night, just as {A} was falling asleep, there was {noise}.""")
    s.say("""{a.p} heart beat fast. "It is {fancy}!" {a} thought.
        "That must be {fancy}," {a} whispered.
        {a} held {A.his} breath. What if it was {fancy}?
        {a} was sure that it was {fancy}.""")
    helper = s.chance(0.5)
    if helper:
        s.say("""{A} ran to {G}. "There is {fancy}!" {a.he} cried. "[Let us go and look|Come, we will see]," said {G}, and took a [lamp|candle|flashlight].
            {A} called for {G}. {G} came with a small lamp. "Shall we look together?" {G.he} asked.""")
    else:
        s.say("""{a} waited, but nobody came. "I have to look," {a.he} told {himself}. "[I will be brave|Only a little look]."
            At first {a} wanted to hide. But then {a.he} thought, "If I do not look, I will never know."
            {a} took a deep breath, lit a [lamp|candle], and put one foot on the floor.
            {a} counted to three. One, two, three! Then {a.he} got up.""")
    s.say("""Slowly, step by step, they went closer.
        They went on tiptoe, and they did not make a sound.""" if helper else """Slowly, step by step, {a} went closer.
        {a} went on tiptoe, and did not make a sound.""")
    s.say("""And what was it? It was {truth}.
        And there it was. It was {truth}!
        {A} lifted the light and looked. It was {truth}.
        It was not {fancy} at all. It was {truth}.""")
    s.say("""{A} began to laugh. "[I was afraid of nothing|Is that all|How silly I was]!" {a.he} said.
        {A} had to laugh so hard that {a.he} sat down on the floor.
        What a relief! {A} laughed and laughed.
        {A} took a deep breath. Then {a.he} giggled.""")
    if helper:
        s.say(""""[In the dark, small things look big|The dark is only the day with its eyes closed|Being brave means looking]," said {G}.
            "Now you know," said {G}. "[Most monsters are very small when you look at them|The night only plays with us]."
            {G} tucked {A.him} in again and kissed {A.him} good night.""")
    s.maybe(0.5, """The next time there was a noise, {A} only smiled and turned over.
        After that, the dark was not so dark any more.
        Since then, {A} has kept a small lamp by the bed, but {a.he} does not need it often.""")
    ending(s, """{a} had learned that [things look worse in the dark|it helps to look at what we fear|even brave people are sometimes afraid].
        "Tomorrow I will tell everyone how brave I was," {a} thought.
        Being brave does not mean that you are never afraid. It means that you look anyway.""")


def learning(s):
    animal_skills = """fly / spread {A.his} wings and jumped from a low branch / landed in a bush / first look where you want to go / bird
        swim / jumped into the pond / swallowed a lot of water / move your legs slowly and keep your head up / duck"""
    skill_kind = s.pick(["fly", "swim", "any"])
    if skill_kind == "fly":
        cast(s, "animal", "animal", ["owl", "crow", "bee", "bat"], ["sparrow", "robin", "owl", "chick", "dragon", "butterfly", "bat"])
    elif skill_kind == "swim":
        cast(s, "animal", "animal", ["turtle", "frog", "otter", "duck"], ["duck", "penguin", "puppy", "otter", "seal", "elephant", "bear"])
    else:
        cast(s, "child child animal", "worker relative animal")
    opening(s)
    block = {"fly": animal_skills.splitlines()[0], "swim": animal_skills.splitlines()[1], "any": """whistle / blew as hard as {A.he} could / made no sound but a hiss / blow softly and do not be in a hurry / x
        juggle / threw three apples into the air / had all three apples on {A.his} head / start with one apple, then take two / x
        skate / went out on the ice / fell down with a bump / bend your knees and look ahead / x
        dance / turned around in a circle / fell over {A.his} own feet / listen to the music first / x
        play the flute / blew into it / made a sound like an angry goose / play one note at a time / x
        bake bread / mixed flour and water / had a bread as hard as a stone / give the dough time to rest / x
        paint / painted a horse / had a picture that looked like a table / look carefully before you begin / x
        sing / opened {A.his} mouth and sang / scared all the birds away / take a deep breath and sing from the heart / x
        tie a knot / took a piece of rope / had tied {A.his} own foot to the chair / go slowly and do one loop after the other / x
        climb the tall tree / jumped at the lowest branch / slid down again / look for a good place for every foot / x"""}[skill_kind]
    s.pair(("skill", "tried", "result", "advice", "unused"), block)
    one_day(s)
    s.say("""{A} wanted to learn to {skill}.
        More than anything else, {A} wanted to {skill}.
        All the others could {skill}. Only {A} could not.
        There was one thing that {A} could not do. {a} could not {skill}.
        "I want to learn to {skill}," said {A} one day.""")
    s.say("""{a} {tried} and {result}.
        So {a.he} {tried}. A moment later, {a.he} {result}.
        The first time, {a} {tried} and {result}.""")
    s.maybe(0.7, """The others laughed. {A} turned red.
        "[You will never learn it|Give it up]," said {A.his} [brother|sister|cousin].
        {a} tried again, and again it went wrong.
        The second time was no better, and the third time was even worse.
        "Ouch," said {A}.""")
    sad(s)
    s.paragraph()
    s.say("""A {B.intro} had seen it all. "[I could not do it at first, either|Everyone begins small]," said {B}.
        Then a {B.intro} came by. "[I have watched you|You are trying too hard|Do not give up]," said {B}.""" if s.cast["B"].kind not in ("grandmother", "grandfather", "mother", "father", "aunt", "uncle") else """{B} had seen it all. "[I could not do it at first, either|Everyone begins small]," said {B}.
        {A} told {B} about it. "[I fell down a hundred times when I was learning|Do not give up|It takes time]," said {B}.""")
    s.say(""""The secret is this: {advice}."
        "Here is what you must do," said {B}. "{advice}."
        {B} said, "{advice}. And then practice every day."
        """)
    s.say("""So {A} practiced. {a} practiced in the morning, and {a.he} practiced in the evening.
        {A} practiced every day, [for a whole week|even when it rained|even when {a.he} was tired].
        {A} nodded and tried once more. It was a little better this time.
        Every day {A} tried again. On Monday it went badly. On Tuesday it went better.""")
    s.maybe(0.4, """Sometimes {a} wanted to give up, but {B} always said, "[Once more|One more time|Almost]!"
        Sometimes it hurt, and sometimes it was funny.
        {B} came every day to watch and to help.""")
    s.say("""And then, one [morning|evening|day], it worked. {A} could {skill}!
        At last the day came. {A} tried it again, and suddenly it was easy. {a} could {skill}!
        On the seventh day, everyone came to look. {A} took a deep breath, and this time it worked!
        "Look!" shouted {A}. "I can {skill}!" And it was true.""")
    glad(s)
    s.say(""""I knew it," said {B}.
        {B} smiled proudly.
        Those who had laughed were now asking, "Can you teach us, too?"
        "[You did that all by yourself|You never gave up, and that is why]," said {B}.
        The others cheered, and nobody laughed at {A.him} any more.""")
    ending(s, """Nobody is born a master. Practice makes the difference.
        {a} had learned something even more important: never give up too soon.
        Falling down is not bad, as long as you get up again.
        "[Everything is hard before it is easy|A mistake is only a step]," {B} used to say.""")
