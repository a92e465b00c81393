"""Plots: building, mistakes, markets, the sea, machines, gardens, lost children, new friends, races, gifts."""

from common import animals_met, cast, ending, glad, grown_up, one_day, opening, sad, supper


def build(s):
    cast(s, "child child animal", "child animal")
    opening(s)
    one_day(s)
    s.pair(("thing", "what", "stuff", "why_broke", "fix", "final"), """a boat / boat / old boards and a bedsheet / water came in through the cracks / filled the cracks with wax / sailed across the pond like a swan
        a raft / raft / logs and rope / the knots came loose / tied the knots twice / carried them both down the stream
        a kite / kite / paper and thin sticks / it was too heavy to fly / made it smaller and gave it a long tail / climbed higher than the trees
        a bridge / bridge / planks and stones / it bent in the middle and broke / put a big stone under the middle / was strong enough for everyone
        a birdhouse / birdhouse / wood and nails / the roof fell off / used longer nails / had its first guests the next morning
        a treehouse / treehouse / boards and rope / the floor was crooked / measured every board again / stood firm, even in the wind
        a wagon / wagon / a box and four wheels / one wheel rolled away / put a pin in front of every wheel / rolled down the hill as fast as the wind
        a little house / house / mud and straw / the first rain washed it away / used stones and clay / kept out the rain and the wind
        a swing / swing / a board and an old rope / the rope broke / found a new and stronger rope / went so high that they could see the river
        a tower / tower / flat stones / it fell over / put the biggest stones at the bottom / was taller than the two of them
        a windmill / windmill / sticks and paper / it did not turn / bent the paper a little at every corner / turned all day long
        a lantern / lantern / paper and a candle / the wind blew out the flame / put a glass around the flame / shone in all colors""")
    s.say("""{A} wanted to build {thing}.
        "I am going to build {thing}," said {A} one {day}.
        One {day}, {A} had an idea. {a} would build {thing}!
        For a long time, {A} had dreamed of having {thing}. "Then I will build one," {a.he} said.""")
    s.say("""{a} told {A.his} friend, a {B.intro}. "I will help you," said {B} at once.
        A {B.intro} heard about it and wanted to help. "[Two can do more than one|That sounds like fun]," said {B}.
        {a} had a friend, a {B.intro}. "Will you help me?" asked {A}. "Of course," said {B}.""")
    s.say("""They [looked for|gathered|found] {stuff}.
        All they had was {stuff}. But that was enough.
        They needed {stuff}, and they found everything [behind the barn|in the shed|near the river].""")
    s.say("""{A} [held|carried] the big parts, and {B} put them together.
        They [worked|hammered|measured] all morning.
        They worked hard, and they sang while they worked.
        {B} made a drawing, and {A} did the rest.""")
    s.say("""At last the {what} was ready. But oh, {why_broke}!
        In the afternoon, the {what} was finished. But when they tried it, {why_broke}.
        "Ready!" said {A}. But then {why_broke}.
        It looked wonderful. But not for long, because {why_broke}.""")
    s.say("""{A} wanted to give up. "[It is no good|We cannot do it|All that work for nothing]," {A.he} said.
        {B} kicked a stone. "It will never work," {B.he} said.
        For a moment they were both very quiet.
        They looked at each other. What a mess!""")
    s.cast["X"] = s.pick([s.cast["A"], s.cast["B"]])
    s.say(""""[Why did it go wrong|What can we learn from this]?" asked {X}. They looked at it closely, and then they {fix}.
        "We only have to find out what went wrong," said {X}. So they tried again and {fix}.
        The next day, they started again. This time they {fix}.
        "I know what to do," said {X}. And together they {fix}.""")
    s.say("""And now it worked! The {what} {final}.
        They tried it once more, and the {what} {final}.
        Then came the big moment. And the {what} {final}!
        They could hardly believe it. The {what} {final}.""")
    glad(s)
    s.maybe(0.5, """The neighbors came to look. "[Who built that|Did you make that yourselves]?" they asked. {A} and {B} [nodded proudly|laughed].
        Everyone wanted to try it, and everyone had a turn.
        "We did it!" they called, and danced around the {what}.""")
    supper(s)
    ending(s, """[If something breaks, you can build it better|The second try is often the best one|A mistake shows you the way].
        {a} had learned that [you must look closely when something goes wrong|giving up is never a good plan].
        "It was good that it broke," said {B}. "Now we know how to do it right.\"
        """)


def broken(s):
    cast(s, "child child animal")
    grown_up(s)
    s.at_home = True
    opening(s)
    one_day(s)
    s.pair(("item", "noun", "how"), """a blue vase / vase / was playing ball in the house, and the ball flew the wrong way
        a big white plate / plate / was running through the kitchen and bumped into the table
        an old clock / clock / wanted to see what was inside and took it apart
        a garden window / window / threw a stone over the fence
        a glass lamp / lamp / was dancing on the sofa and fell against it
        the good teapot / teapot / tried to carry too many things at once
        a pot of red paint / pot / was in a hurry and did not look, and red paint ran over the floor
        a jar of honey / jar / climbed on a chair to reach the highest shelf
        a little music box / music box / turned the key too far, until something went crack""")
    s.say("""In the house there was {item}. {G} loved it very much.
        {G} had {item}, a gift from an old friend.
        On the shelf stood {item}. It belonged to {G}.""")
    s.say("""One {day}, {A} {how}. Crash! The {noun} was broken.
        One {day}, {A} {how}. There was a loud noise, and the {noun} lay in pieces.
        Then it happened. {A} {how}. And now the {noun} was broken.""")
    s.say("""{a} stood very still. Nobody had seen it.
        "Oh no!" {a} whispered. {a} looked around, but nobody was there.
        {a.p} face turned [white|red]. What would {G} say?""")
    s.say("""Quickly, {a} hid the pieces [under the bed|in a box|behind the curtain|under the rug].
        {a} pushed the pieces under the rug and ran outside.
        {a} put the pieces in a bag and hid the bag [in the shed|behind the stove].""")
    s.say("""When {G} came home, {G.he} looked at the empty place. "Do you know where the {noun} is?" {G.he} asked. "[No|The wind did it|Maybe it was the cat]," said {A}.
        "Have you seen the {noun}?" asked {G} at supper. {A} [shook {A.his} head|looked at the floor|said nothing].
        In the evening, {G} asked about the {noun}. "I do not know anything about it," said {A}.""")
    s.say("""But that night, {a} could not sleep. {a.p} stomach felt as heavy as a stone.
        {a} did not like the taste of {A.his} food, and nothing was fun any more.
        The lie sat in {A.his} heart like a little stone, and it grew bigger and bigger.
        All night long, {a} turned from one side to the other.""")
    s.say("""In the morning, {A} went to {G}. "[I have to tell you something|It was me|I did something bad]," {A.he} said[ with tears in {A.his} eyes||, very quietly].
        At last {A} could not bear it any longer. "I broke the {noun}," {A.he} told {G}. "I am so sorry."
        The next day, {A} brought the pieces to {G}. "I broke it, and I did not tell the truth," {A.he} said. "I am sorry.\"
        """)
    s.say("""{G} was quiet for a moment. Then {G.he} [smiled|took {A.his} hand|gave {A.him} a hug]. "[A {noun} is only a {noun}|Thank you for telling me|The truth is worth more than a {noun}]," {G.he} said.
        "I was sad about the {noun}," said {G}, "but I am glad that you told me the truth."
        "That was brave of you," said {G}. "[Everyone makes mistakes|I once broke something, too]."
        {G} looked at {A} for a long time. "I know," {G.he} said. "I was waiting for you to tell me.\"
        """)
    s.say("""Together they [glued the pieces together|mended it with glue and patience|put the pieces together again]. It was not perfect, but it was even more special than before.
        The next Saturday, {A} helped in the garden and saved {A.his} coins for a new {noun}.
        {A} worked for a week to buy a new {noun}, and {G} was proud.
        They cleaned up together, and {A} made a drawing of the {noun} for {G}.""")
    s.maybe(0.6, """The stone in {A.his} heart was gone.
        {a} felt as light as a feather.
        That night, {A} slept like a baby.""")
    ending(s, """{a} had learned that [the truth makes the heart light|a lie is heavier than a mistake|it is best to say sorry at once].
        A broken {noun} can be mended, and so can a mistake.
        Since then, {A} has always told the truth, even when it was hard.""")


def market(s):
    cast(s, "child child animal", "worker")
    grown_up(s)
    opening(s)
    one_day(s)
    s.pair(("buy", "coins"), """a loaf of bread / two coins
        a dozen eggs / three coins
        a bag of flour / four coins
        some apples / two coins
        a jar of honey / five coins
        a piece of cheese / three coins
        a fish for supper / four coins
        a ball of red wool / two coins
        a bunch of carrots / one coin
        a new broom / six coins""")
    s.say("""One {day}, {G} gave {A} {coins}. "Please go to the market and buy {buy}," {G.he} said.
        "Can you go to the market for me?" asked {G}. "We need {buy}. Take {coins} with you."
        On market day, {G} sent {A} to buy {buy}. "Here is the money," {G.he} said. "Take good care of it.\"
        """)
    s.say("""{A} was proud, because {A.he} had never gone alone before.
        {A} put the money in {A.his} pocket and set off.
        "I will be careful," {A} promised, and [ran|walked] down the road.""")
    s.say("""The market was full of [people|colors|voices]. There were [apples and pears|pots and pans|flowers and cheese], and someone was playing the [flute|violin|drum].
        At the market, everyone was shouting and laughing. It smelled of [fresh bread|oranges|fish|flowers].
        What a noise there was at the market! Hens clucked, bells rang, and a man sold balloons.""")
    kind = s.rng.randrange(3)
    if kind == 0:
        s.say("""But when {a} put {A.his} hand into {A.his} pocket, it was empty. There was a hole in the pocket!
            But then {A} felt in {A.his} pocket. The money was gone!""")
        sad(s)
        s.say("""A {B.kind} saw {A.his} sad face. "[What is the matter|Why are you crying]?" asked {B}. "I have lost the money," said {A}.""")
        s.say(""""[I will lend you the money|You can help me instead]," said {B}. "[You can sweep my shop|Carry these baskets for me], and I will give you {buy}."
            "Go back the way you came, and look carefully," said {B}. {A} did, and there, beside the [fountain|bridge|old gate], {A.he} found all of it.""")
        s.say("""{A} thanked {B} and did it gladly.
            "[How kind of you|You are very kind]!" said {A}.
            {A} was so glad that {A.he} hugged {B}.""")
        s.say("""At home, {A} told {G} everything. {G} laughed and mended the hole.
            {A} came home with {buy}. "I learned something today," {A.he} told {G}. "Always look for holes first.\"
            """)
        ending(s, """There are kind people everywhere.
            {a} had learned to take care of small things.
            A helping hand is worth more than a full pocket.""")
    elif kind == 1:
        s.say("""{A} bought {buy} from a {B.intro}. On the way home, {A.he} counted the change. There was one coin too many!
            {A} paid a {B.intro} for {buy}. But at the corner {A.he} saw that {B} had given {A.him} too much money back.""")
        s.say("""With that coin {a} could buy [a sweet|a toy|a cake]. Nobody would know.
            "I could keep it," {a} thought. But it did not feel right.""")
        s.say("""{a} turned around and went back. "You gave me too much," {A.he} said, and put the coin on the table.
            It was a long way back, but {a} ran. "This coin is yours," {A.he} said to {B}.""")
        s.say("""{B} was surprised. "[An honest heart is worth more than gold|Thank you, that was honest of you]," {B.he} said, and gave {A} [an apple|a sweet bun|a red balloon].
            {B} smiled. "Not everyone would have done that," {B.he} said. "Here is a little present for you.\"
            """)
        s.say("""{G} was very proud when {A} told {G.him} about it.
            At home, {A} told {G} the whole story. "I am proud of you," said {G}.""")
        ending(s, """Honest people sleep well.
            {a} had learned that being honest makes the heart warm.
            And every time {A} came to the market, {B} waved at {A.him}.""")
    else:
        s.say("""On the way, {A} looked at so many things that {A.he} forgot what {A.he} should buy.
            There was so much to see that {A} forgot what {G} wanted.
            {A} stopped to watch a [juggler|puppet show|man with a monkey]. Afterwards {A.he} could not remember what to buy.""")
        s.say(""""Was it [a hat|a goose|soap|a chair]? Or was it [a bell|pepper|a candle|a shoe]?" {A} asked {himself}.
            {A} scratched {A.his} ear. Was it something to eat? Was it round?""")
        s.say("""A {B.intro} asked, "What will your {G.kind} do today?" "{G} is going to be very busy in the house," said {A}. And suddenly {A.he} remembered. It was {buy}!
            "Close your eyes and think of home," said a {B.intro}. {A} closed {A.his} eyes, and then {A.he} knew it. It was {buy}!""")
        s.say("""{A} bought {buy} and sang a song about it all the way home, so that {A.he} would not forget again.
            {A} bought {buy} and hurried home. {G} was already waiting at the gate.""")
        supper(s)
        ending(s, """{a} had learned to do the work first and look around later.
            The next time, {A} wrote it down on a piece of paper.""")


def sea(s):
    cast(s, "child child animal")
    opening(s)
    one_day(s)
    s.one_of("sea", """dolphin
        baby seal
        little whale
        starfish
        sea turtle
        small crab
        silver fish
        young octopus""")
    s.set(sx="[he|she]")
    s.set(so="him" if s.words["sx"] == "he" else "her", sp="his" if s.words["sx"] == "he" else "her")
    s.say("""One {day}, {A} walked along the [beach|shore]. The [waves|sea gulls] [sang|were loud], and the sand was [warm|white|soft].
        One {day}, {A} went down to the sea to look for shells.
        After a stormy night, {A} went to the beach to see what the sea had brought.
        The tide was out, and {A} walked over the wet sand.""")
    s.say("""There, between the rocks, lay a {sea}. The water was gone, and {sx} could not get back to the sea.
        Then {a} saw something move. It was a {sea}, caught in a small pool that was drying up in the sun.
        Behind a big rock, {a} found a {sea}. A piece of old net was wrapped around {so}.
        Suddenly {a} stopped. On the sand lay a {sea}, far from the water.""")
    s.say(""""[Poor thing|You poor little thing|Oh dear]," said {A}. "[You need water|You cannot stay here|The sun is too hot for you]."
        The {sea} looked at {A} with big [sad|dark] eyes.
        "Please help me," whispered the {sea}. "[The sun is so hot|I want to go home to my mother|I cannot swim on sand].\"
        """)
    s.say("""{a} ran to the water with {A.his} [hat|bucket|bag] and poured cool water over the {sea}. Then {a.he} dug a long ditch in the sand, all the way to the sea.
        {a} laid the {sea} on {A.his} [jacket|blanket] and pulled and pulled, step by step, down to the water.
        It was too heavy for one, so {a} called two fishermen. Together they carried the {sea} back into the waves.
        Very carefully, {a} [took|carried] the {sea} over the rocks, down to the sea.""")
    s.say("""A wave came, and another one. Then the {sea} was free.
        The first big wave lifted the {sea} up, and carried {so} away.
        "Now swim!" called {A}, and with a splash the {sea} was gone.""")
    s.maybe(0.8, """Far out, the {sea} turned around once more, as if to say thank you.
        {a} waved until there was nothing to see but water.
        The {sea} came up once more and [blew a bubble|looked back].""")
    if s.chance(0.6):
        s.paragraph()
        s.say("""The next [morning|day], there was a [pearl|pink shell|shiny stone|piece of amber] on the sand, just where {a} had stood. {a} knew who had put it there.
            A week later, {A}'s little boat was lost in the fog. Then something pushed it gently to the shore. It was the {sea}!
            Some days later, {A}'s [hat|toy boat] fell into the water and drifted away. But soon it came back, carried by the {sea}.
            Every evening, {A} went back to the rocks. And sometimes the {sea} came and told {A.him} about the deep blue sea.""")
    ending(s, """{a} had helped someone small, and it felt very big.
        Whoever helps others always finds friends, even in the sea.
        "[I will always listen to the sea|The sea is full of friends]," said {A}.""")


def machine(s):
    cast(s, "machine", "child child animal worker")
    place = s.pick(["a busy workshop", "a big farm", "a little town by the sea", "an old house", "a quiet village", "a garden behind the school", "a town in the mountains"])
    s.set(place=place)
    s.pair(("job", "problem", "deed"), """carry boxes from one place to another / a big tree fell across the road, and nobody could pass / pulled the tree aside, bit by bit
        light the way at night / a fog came in, so thick that the boats could not find the harbor / shone as brightly as possible all night
        sweep the floors every morning / a little bird fell out of its nest / held the bird gently until its mother came
        water the flowers / the well ran dry, and the plants began to die / drove down to the river again and again, and brought water
        bring the letters to every house / snow covered the whole road / made a path through the snow, so that everyone could get out
        tell everyone what time it was / one night a fire started in the barn / rang and rang until everyone woke up
        help in the fields / a storm was coming, and the hay was still outside / worked all day and brought in the hay before the rain
        take the children to school / the bridge was broken, and the children could not get home / found another way over the hill and brought them all home
        count the apples in the store / a small child was lost in the woods / called and blinked a red light until the child came out""")
    s.say("""Once upon a time, there was a {A.intro}. {a} lived in {place}, and it was {A.his} job to {job}.
        In {place} there was a {A.intro}. Every day, {A.his} work was to {job}.
        There was once a {A.intro} who had only one job: to {job}.
        {A.name} was a {A.kind}. All day long, {a} had to {job}.
        {A.name} the {A.kind} lived in {place}. {a} was made to {job}.
        One day, a {A.intro} came to {place} to {job}.""")
    s.say("""{a} was [not new|a bit rusty], and {A.his} [wheels|gears|screws] squeaked.
        {a} had [one big lamp|two round lights|a small bell] and a very good heart.
        {a} was proud of {A.his} work, and {A.he} never complained.
        {a} liked the work, but sometimes {A.he} felt lonely.""")
    s.say("""But one day, somebody brought a new machine. It was faster, and it was shinier. "We do not need {A} any more," people said.
        One day, {A} suddenly stopped. Something inside was broken. "[Too old|Nothing to be done]," people said, and pushed {A.him} into the shed.
        But people began to laugh at {A}. "How slow you are," they said.
        "You are only a machine," said the [cat|goose|big truck]. "You cannot be anybody's friend.\"
        """)
    sadness = """{a} stood in the corner, and the dust fell on {A.him}.
        {a} felt very small. If a machine could cry, {A.he} would have cried.
        {a} turned off {A.his} light and was silent."""
    s.say(sadness)
    s.say("""Only one did not forget {A}. It was a {B.intro}, who came every day with a little oil.
        Then a {B.intro} came in. "I like you just as you are," said {B}, and cleaned the dust away.
        But a {B.intro} sat down beside {A.him}. "[I think you only need a little oil|Let me look at that|I believe in you]," said {B}.""")
    s.maybe(0.6, """{B} turned a screw here and a screw there, and put a drop of oil on every wheel. Click! {A} could move again.
        {B} opened the little door at the back. A small stone was stuck between the wheels. {B.he} took it out, and {A} began to hum.
        "Thank you," said {A}, and blinked.""")
    s.paragraph()
    s.say("""Then, one [stormy night|cold morning|autumn day], {problem}.
        A few days later, {problem}.
        But then something happened: {problem}.""")
    s.say("""The new machine did not know what to do. Nobody knew what to do.
        Everyone was afraid. "Who can help us?" they cried.
        People ran here and there, and nobody had an idea.""")
    s.say(""""I can help," said {A}. And {A.he} {deed}.
        {A} did not wait. {a} {deed}.
        "Let me try," said {A}. Slowly but surely, {A.he} {deed}.""")
    s.say("""Everyone cheered. "[Hooray for {A}|Well done, {A}]!" they shouted.
        "You saved us," people said. "We are sorry that we laughed."
        "I told you so," said {B}, and laughed with joy.
        The people were ashamed. They painted {A} in bright new colors.""")
    s.say("""From that day on, nobody ever called {A} old or slow again.
        {A} got a new lamp, a warm place to sleep, and many friends.
        Now {A} had the best job of all: to be there when someone needed help.
        And {B} and {A} stayed friends for ever.""")
    s.maybe(0.5, """What is old can still be good.
        It is not important how fast you are. It is important that you are there.
        Everybody is good at something.
        The end.""")


def seed(s):
    cast(s, "child child animal", "relative animal worker")
    opening(s)
    one_day(s)
    s.pair(("seed", "plant", "harvest"), """a small black seed / sunflower / it was taller than the fence, and it turned its face to the sun
        a little brown bean / bean plant / there were beans enough for a big pot of soup
        an apple seed / apple tree / there was one red apple, and it was the sweetest of all
        a round pumpkin seed / pumpkin / it was so big that nobody could lift it
        a tiny carrot seed / carrot / it was so long that two had to pull it out
        a strange seed that nobody knew / flower / it was as blue as the sky, and it smelled of honey
        a shiny acorn / oak tree / many years later, birds lived in it and children played in its shade
        a cherry stone / cherry tree / in spring it was all white, and in summer it was full of cherries
        an old potato / potato plant / there were twelve new potatoes under it""")
    s.say("""One {day}, {A} found {seed}. "What will this be?" {A.he} asked.
        One spring day, {A} found {seed} in an old box.
        One {day}, the wind blew {seed} right in front of {A}.""")
    intro_b = "{B}" if s.cast["B"].name and s.cast["B"].name.lower() == s.cast["B"].kind else "a {B.intro}"
    s.set(bi=intro_b)
    s.say("""{A} showed it to {bi}. "[Put it in the earth|Plant it], give it water, and wait," said {B}.
        "You must plant it," said {bi}. "And then you must wait."
        "If you plant it," said {bi}, "something wonderful will happen. But you need patience.\"
        """)
    s.say("""{a} dug a small hole [near the fence|in the garden|beside the path], put it in, and covered it with earth.
        So {a} made a hole in the ground and laid it in gently. "Sleep well," {A.he} said.""")
    s.say("""The next morning, {a} looked. Nothing. The day after, {a} looked again. Nothing.
        {a} watered it every day. But for a long time there was only brown earth.
        One day passed, two days passed, a whole week passed. Nothing happened.""")
    s.say(""""[It does not work|It is asleep|Maybe it is broken]," said {A}. "[Wait|Be patient|Good things take time]," said {B}.
        {A} wanted to dig it up and look. "Do not do that," said {B}. "[It is working in secret|You cannot pull on a plant to make it grow]."
        {A} sang to it, {A.he} told it stories, and {A.he} begged it to grow. {B} only smiled.""")
    s.maybe(0.6, """One night there was a storm. {A} ran out and put a [box|bucket] over the place to protect it.
        Then it became very hot. Every evening, {A} carried water from the well.
        A snail came and wanted to eat it. "Please do not," said {A}, and gave the snail some lettuce.
        The birds wanted to pick at it, so {A} made a scarecrow.""")
    s.say("""And then, one morning, there was something green. A tiny leaf!
        But one day, a little green tip looked out of the ground.
        "Come quickly!" shouted {A} one morning. Two small leaves were shining in the sun.""")
    glad(s)
    s.say("""It grew and grew. It became a {plant}, and {harvest}.
        Week after week it grew. In the end it was a real {plant}, and {harvest}.
        Now {A} knew what it was. It was a {plant}! And {harvest}.""")
    s.maybe(0.6, """"You see?" said {B}. "All it needed was time."
        {A} kept [one seed|some seeds] for the next year.
        {A} shared it with all the neighbors.
        {a} gave the best part to {B}.""")
    ending(s, """Good things need time.
        {a} had learned to be patient.
        "[Great things begin very small|Waiting is hard, but it is worth it]," said {B}.
        Even the biggest tree was once small enough to hold in one hand.""")


def lost_child(s):
    cast(s, "animal", None, None, ["duck", "lamb", "chick", "kitten", "puppy", "penguin", "elephant", "deer", "bear", "owl", "rabbit", "mouse", "hedgehog", "fox", "pig", "seal"])
    animals_met(s, "B", "C", "D")
    opening(s)
    one_day(s)
    s.pair(("because", "sign"), """a yellow butterfly / her soft voice
        a leaf that danced in the wind / the way she walked
        a shiny beetle / her song
        the sound of a far drum / her big eyes
        a rolling apple / her laugh
        a rainbow / her quick steps
        a funny cloud / her call""")
    s.say("""One {day}, {A} was walking with {A.his} mother. Then {a} saw {because} and ran after it.
        "Stay close to me," said {A}'s mother one {day}. But {A} saw {because} and forgot everything else.
        One {day}, {A} followed {because}, on and on, over the hill and through the [grass|bushes].""")
    s.say("""When {a} looked around, everything was strange. {a.p} mother was nowhere to be seen.
        After a while {a} stopped. Where was {A.his} mother? And which way was home?
        Suddenly {a} was all alone.""")
    sad(s)
    for key, p in (("B", 0.9), ("C", 0.7)):
        s.cast["X"] = s.cast[key]
        s.maybe(p, """{a} came to a {X.intro}. "Have you seen my mother?" {A.he} asked. "[No, little one|I am sorry, no]," said {X}. "[But ask over there, by the water|I have only seen a snail today|I have been asleep all day]."
            A {X.intro} sat on a stone. "Are you my mother?" asked {A}. {X} laughed. "[No, I am not]," said {X}. "But I hope you will find her."
            Then {a} met a {X.intro}. "[Excuse me|Please], do you know where my mother is?" {A.he} asked. {X} thought about it and shook {X.his} head.""")
    s.paragraph()
    s.say("""It grew dark, and the wind was cold. {a} crept under a bush.
        The sun was going down, and {a} was tired and hungry.
        {a} was tired, but {A.he} went on.""")
    s.say("""At last {a} met an old {D.kind}. "[Do not be afraid|Dry your tears]," said {D}. "[Stay where you are, and your mother will find you|Tell me, what does she sound like|I know every path here]."
        Then an old {D.kind} saw {A.him}. "Little one, are you lost?" asked {D}. "Come with me. I will not leave you alone.\"
        """)
    s.say(""""She has the kindest voice in the world," said {A}. And just then {a} heard it: someone was calling.
        They listened. Far away, someone was calling.
        {D} called as loudly as {D.he} could, and from the other side of the hill came an answer.""")
    s.say("""Out of the dark came {A}'s mother. "There you are!" she cried, and held {A.him} tight.
        It was {A}'s mother! {A} knew her at once by {sign}.
        "Mother!" shouted {A}, and ran to her as fast as {A.he} could.""")
    s.say(""""I was looking for you everywhere," she said. "[Promise to stay close|Thank goodness you are safe]."
        "I am sorry," said {A}. "I will never run away again."
        {A}'s mother thanked {D} with all her heart.""")
    ending(s, """{a} stayed close to {A.his} mother after that.
        Home is where somebody is waiting for you.
        {a} had learned that there are helpers everywhere, but nobody is like a mother.""")


def new_friend(s):
    cast(s, "child child animal", "child animal")
    opening(s)
    one_day(s)
    s.say("""One {day}, a new neighbor came. It was a {B.intro}.
        One {day}, somebody new came to live there. It was a {B.intro}.
        Then a {B.intro} moved into the empty house next door.""")
    s.pair(("odd", "gift"), """spoke with a strange accent / knew wonderful songs from far away
        was very quiet and looked at the ground / could draw the most beautiful pictures
        wore an odd green hat / could do magic tricks with it
        walked with a stick / knew the best stories of all
        was bigger than all the others / could carry everyone on a strong back
        was smaller than all the others / could find the smallest things
        never said a word / could whistle like a bird
        always carried a big bag / had a whole puppet theater in it
        was afraid of loud noises / could hear things that nobody else could hear""")
    s.say("""{B} {odd}. The others whispered and laughed.
        {B} {odd}, and nobody wanted to play with {B.him}.
        {B} sat alone every day. And {B.he} {odd}.""")
    s.say("""{A} did not laugh. {a} remembered what it was like to be alone.
        {A} saw that {B} was lonely.
        At first {A} did not know what to say.
        "[I would not like to be alone like that|Everyone needs a friend]," thought {A}.""")
    s.say("""So {A} went over and said, "[Hello, my name is {A.name}|You can have half of my apple]." {B} looked up and smiled.
        {A} took a deep breath. "[Would you like to play with me|May I sit here]?" {A.he} asked. "[Yes, please|I would love to]," said {B} softly.
        {A} put [a flower|an apple|a little note] in front of {B}'s door. The next day, {B} came out and said thank you.
        {A} sat down beside {B.him}. For a while they said nothing. Then {B} smiled.""" if s.cast["A"].name else """{A} took a deep breath. "[Would you like to play with me|May I sit here]?" {A.he} asked. "[Yes, please|I would love to]," said {B} softly.
        {A} sat down beside {B.him}. For a while they said nothing. Then {B} smiled.""")
    s.say("""They [played|talked|laughed] until the sun went down.
        They went to the [river|hill|garden] together and [looked at the clouds|threw stones into the water|built a dam].
        First they talked about the weather, then about everything else.""")
    s.say("""And then {A} found out that {B} {gift}.
        "Can I show you something?" asked {B}. And it turned out that {B.he} {gift}.
        Soon {A} knew a secret: {B} {gift}.""")
    s.say("""When the others saw it, they came closer. "[May we join you|Can we play, too]?" they asked.
        The others were amazed. "[Why did you not tell us|That is wonderful]," they said.
        One by one, the others came, too. "We are sorry that we laughed," they said.""")
    s.say("""{B} was happy to have so many friends. But {A} was always the first one.
        "Of course," said {B}, who was not shy any more.
        "You were the first to say hello," said {B} to {A}. "I will never forget that.\"
        """)
    supper(s)
    ending(s, """A friend is often only one hello away.
        {a} had learned that it is good to look twice before you judge.
        [Different is not bad|Those who are different have the most to give].
        "It is easy to make a friend," thought {A}. "You only have to begin.\"
        """)


def race(s):
    cast(s, "animal", "animal", ["snail", "turtle", "ant", "mole", "hedgehog", "worm", "caterpillar", "mouse", "donkey", "ladybug"], ["rabbit", "deer", "fox", "pony", "squirrel", "crow", "monkey", "grasshopper", "dog"])
    opening(s)
    one_day(s)
    s.pair(("goal", "delay"), """the old oak / lay down in the shade to sleep
        the mill / stopped to look at {A.his} own face in the pond
        the top of the hill / told everyone along the way how fast {A.he} was
        the big stone by the river / stopped to eat
        the end of the meadow / took a longer way, just to show off
        the bridge / jumped over a fence and got stuck""")
    s.say("""{a} was [very fast|the fastest of all], and {A.he} never let anyone forget it.
        {a} had one bad habit: {A.he} boasted.
        "Nobody is as fast as I am," {A} said every day. Everyone was tired of hearing it.""")
    s.say("""One {day}, a {B.intro} said, "Let us have a race." {A} [laughed|laughed out loud]. "You? You are far too slow."
        One {day}, {A} made fun of a {B.intro}. "You are so slow that you meet yourself on the way home," {A.he} said. "Then let us race to {goal}," said {B} calmly.
        "I will race you," said a {B.intro} one {day}. "To {goal}.\"
        """)
    s.say("""Everyone came to watch. "Ready, steady, go!" called the [owl|frog|old goat].
        The next morning, all the animals came. The old owl counted to three, and the race began.
        They agreed to run to {goal}. All the others stood along the path.""")
    s.say("""{A} shot off like an arrow. {B} went slowly, one step after the other.
        After a moment, {A} was out of sight. {B} did not hurry, and {B.he} did not stop.
        {A} was far ahead in no time. "This is too easy," {A.he} laughed.""")
    s.say("""Halfway there, {A} {delay}. "I have all the time in the world," {A.he} said.
        Because {A.he} was so far ahead, {A} {delay}.
        Then {A} {delay}. There was no sign of {B}.""")
    s.say("""But {B} went on and on. {B.he} did not stop to rest, and {B.he} did not look back.
        Meanwhile, {B} went on, step by step.
        "Slow and steady," {B} said to {B.self}, and went on.""")
    s.say("""When {A} remembered the race, it was too late. {B} had reached {goal}!
        Suddenly {A} heard cheering. {B} had won!
        {A} ran as fast as {A.he} could, but {B} was already there.""")
    s.say("""{A} was ashamed. "You have won," {A.he} said, and [bowed|looked at the ground]. "I am sorry that I laughed at you."
        "How did you do that?" asked {A}. "I just kept going," said {B}.
        "Next time I will not boast," said {A}. {B} smiled. "And next time I will run with you, and not against you.\"
        """)
    ending(s, """{a} never boasted again.
        It is not enough to be fast. You must also keep going.
        [Pride comes before a fall|Slow steps also reach the goal].
        Since then, the two have gone for many walks together, slowly.""")


def gift(s):
    cast(s, "child animal", "child animal relative")
    b = s.cast["B"]
    is_relative = b.kind in ("grandmother", "grandfather", "mother", "father", "aunt", "uncle")
    opening(s)
    one_day(s)
    s.set(bi="{A.his} {B.kind}" if is_relative else "{A.his} best friend, a {B.intro}")
    s.say("""Soon it would be the birthday of {bi}.
        The next day was a special day. It was the birthday of {bi}.
        {a} wanted to give a present to {bi}. It was {B.his} birthday.""")
    s.say("""But {A} had no money. {a} turned {A.his} pockets inside out. There was only a [button|nut|piece of string].
        But what could {A.he} give? {a} had only one small coin.
        {A} looked in the shop window. Everything was too expensive.
        The others had bought big presents. {A} had nothing at all.""")
    s.maybe(0.7, """"What does {B} like?" {a} asked {himself}. {a} thought about it all day.
        "A present must come from the heart," {a} thought. But what could it be?
        {a} walked up and down and thought.""")
    s.pair(("idea", "present"), """went into the woods and picked up the most beautiful leaves, red and gold / a crown of leaves
        took paper and colors and painted every nice day they had spent together / a little book of pictures
        climbed the hill early in the morning and picked flowers / a bunch of wild flowers
        sat down and made up a song / a song with three verses
        found a piece of wood and carved it, little by little / a small wooden bird
        collected smooth stones at the river and painted a face on each one / a whole family of stones
        took some old wool and knitted all night / a long and rather crooked scarf
        went to the beach and looked for shells / a chain of shells
        baked a small cake with the last flour and the last honey / a little honey cake
        wrote a letter and told {B} everything that {A.he} had never said / a long letter""")
    s.say("""Then {a} had an idea. {a} {idea}.
        At last {A} knew what to do. {a} {idea}.
        So {a} {idea}.""")
    s.maybe(0.4, """It took a long time, and it was hard work, but {a} did not stop.
        {a} worked until the moon was high in the sky.
        It was not perfect, but it was made with love.""")
    s.say("""The next day, everyone came with a present. There were big boxes and golden ribbons. {A} stood at the back with {present}.
        On the birthday, {A} was a little shy. "It is only {present}," {A.he} said.
        When it was {A}'s turn, {A.he} held out {present}. "I made it for you," {A.he} said.""")
    s.say("""{B} was very quiet. Then {B.he} [smiled|hugged {A}|wiped a tear away]. "This is the most beautiful present of all," {B.he} said.
        {B}'s eyes were shining. "[Nobody has ever made something for me|You have thought of me, and that is the best present]," {B.he} said.
        "You made this for me?" asked {B}. {A} nodded. "Then I will keep it for ever," said {B}.""")
    glad(s)
    s.maybe(0.5, """The other presents were soon forgotten. But {B} never forgot that one.
        Then they [danced|sang|played games] until late.
        They ate cake, and {A} had the biggest piece.""")
    ending(s, """The best presents cannot be bought.
        {a} had learned that a gift from the heart is worth more than gold.
        A small thing made with love is never small.""")
