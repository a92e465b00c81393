"""Words without a call: small talk, what no tool covers (refusals.py), and wishes that lack what must be known.

MISSING gives, for a tool, a wish that names nothing but the tool ("set a timer"); ANSWERS gives the bare value that a user
says after the question ("ten minutes") with the full call. `offered_not` words the answer where a tool is not offered.
"""

import re

from grammar import Request, chance, copied, expand, in_words, invented, number, one_of
from refusals import FIRST, refuse, words

JOKES = """Why did the lamp go to school? It wanted to be brighter. / I asked the clock for a joke, but it had no time. / Why was the kettle so
upset? It was boiling inside. / What did the curtain say to the window? I've got you covered. / Why do fridges never tell secrets? They are too cool
for that. / My timer left me. It said our time was up. / Why did the egg timer laugh? It cracked up. / What do you call a sleeping oven? Off. / Why
was the broom late? It swept in. / What did one plug say to the other? You light up my life. / The vacuum cleaner hates its job: it sucks. / Why did
the spoon stay home? It was stirred up. / Two light bulbs meet. Says one: you look a bit dim today. / I know a joke about the attic, but it's over
your head. / Why is the alarm clock so unpopular? It starts every day with a fight. / What does a house wear? Address. / My thermostat and I broke
up. Things got too heated. / The stairs are up to something, I'm sure of it. / Why was the shopping list sad? Everything got crossed off. / What do
you call a blind without a window? Lost. / Why did the heater get a medal? For its warm welcome. / I'd tell you a joke about the basement, but it's
beneath me."""

# Each paragraph: answers, then patterns as in refusals.py. A slot may stand in both.
TALK = """
Hello! / Hi there! / Hello, what can I do for you? / Hi! How can I help? / Good to hear you. / Hello! Nice to hear from you. / Hi, I'm listening.
. [hello|hi|hey|hey there|hi there|hello there|howdy|hiya|heya|hallo|yo|greetings|hello again|hi again|ahoy|g'day|hello house|hello you|hey you|
    hey buddy]
. [hi|hello|hey], [it's me|I'm home|I'm back|it's me again|nice to meet you|good to see you|anybody here|little helper|my friend|old friend|
    $first here]
. [I'm home|I'm back|I'm back home|we're home|we are back|honey, I'm home|back again|guess who's back|just got home|here I am]
. [long time no see|nice to meet you|pleased to meet you|good to see you again]
? [what's up|whats up|sup|wassup|what's new|what's going on with you|what are you up to|how's life]

Good morning! / Good morning, have a lovely day. / Morning! Have a good start. / Good morning! What can I do for you?
. [good morning|morning|good morning to you|a very good morning|mornin|top of the morning|good morning, house|good morning, sunshine|
    good morning everyone]
. [I'm up|I'm awake|I just woke up|I slept well|I slept like a log|I slept badly|good morning, I slept well]

The same to you! / Thank you, and to you too. / To you too!
. [good afternoon|good evening|good day|evening|afternoon|good evening to you|have a nice day|have a good one|have a nice weekend|happy friday]
. [merry christmas|happy new year|happy easter|happy halloween|happy birthday to you|season's greetings|happy thanksgiving|enjoy your day]

Good night, sleep well! / Good night! / Sleep tight. / Good night, until tomorrow. / Sweet dreams!
. [good night|goodnight|night|night night|nighty night|good night then|sleep well|sweet dreams|good night, house|good night, sleep tight|
    see you tomorrow]
. [I'm going to bed|I'm off to bed|time for bed|I'm going to sleep now|off to sleep|that's it for today, good night|well, good night|I'm turning in]

Goodbye! / See you soon. / Bye, take care! / Bye! I'll look after the house. / See you later!
. [bye|goodbye|bye bye|see you|see you later|see ya|so long|farewell|ciao|take care|later|cheerio|catch you later|talk to you later|until next time]
. [I'm leaving|I'm off|I'm going out|I'm off to work|gotta go|I have got to run|we're leaving now|bye, see you tonight|I'm on my way out|off we go]

You're welcome! / Any time. / My pleasure. / No problem. / Glad to help. / You're very welcome. / Always happy to help.
. [thanks|thank you|thanks a lot|thank you so much|many thanks|cheers|ta|thx|thanks a bunch|thanks a million|much appreciated|thank you very much|
    thanks again]
. [thanks|thank you] [for that|for your help|for everything|for the reminder|for helping me|, you're a star|, that was quick|, that helps|
    , that's all|, my friend]
. [I appreciate it|I appreciate your help|I owe you one|very kind of you|you saved my day|that was helpful|great job, thanks|perfect, thank you|
    ok thanks]
. [okay|ok|alright|great|perfect|super|awesome|cool|nice|wonderful|very good|excellent|brilliant|lovely|fine|got it|I see] [||, thanks|, thank you|
    , cheers]

I'm fine, thank you. / Very well, thanks, and you? / I'm doing well, thank you for asking. / All is well in the house, and with me too. / Can't
    complain!
? [how are you|how are you doing|how are you today|how's it going|how do you do|how are things|how do you feel|how have you been|how was your day]
? [are you ok|are you alright|are you well|everything ok with you|are you happy|how is my favourite helper|you good|how are you feeling today|
    all good]
? [do you feel good|are you in a good mood|did you have a nice day|is everything fine|how's my house helper]
! tell me how you [are|feel|are doing]
. [I'm fine|I'm good|I'm well], [how are you|and you|how about you]

I'm the helper of this house. / I'm a small helper that looks after the house. / I'm your home helper. / Just the helper of this house, always at
    your service.
? [who are you|what are you|who am I talking to|who is this|what kind of thing are you|who is speaking|are you a robot|are you human|are you an ai|
    are you real]
? [are you a person|are you a man or a woman|are you a computer|what sort of assistant are you|are you alive|do you have a body|are you a machine|
    who's there]
? [are you a boy or a girl|are you siri|are you alexa|are you chatgpt|are you the google assistant|what model are you|are you a language model|
    are you a ghost]
! [introduce yourself|tell me about yourself|tell me who you are|tell me something about you|say something about yourself|describe yourself]

I don't have a real name, just call me helper. / I have no name, I'm just the helper of this house. / You may call me whatever you like. / Helper
    will do.
? [what's your name|what is your name|do you have a name|how should I call you|what do I call you|what are you called|who gave you your name|
    have you got a name]
? [may I ask your name|can I give you a name|what shall I call you|may I call you $first|can I call you $first|is your name $first|
    are you called $first]
! tell me your name
. [I'll call you $first|from now on your name is $first|your name is $first now|I name you $first|I'm going to call you $first]

Nice to meet you, $name. / Hello $name! / Pleased to meet you, $name. / Hi $name, how can I help?
. [my name is|I'm|I am|call me|people call me|it's me,|this is|the name's] $name / [hello|hi|hey], [I'm|my name is|this is|I am] $name

Hello! I'm sure we'll get along. / Welcome, I'm the helper of this house. / Nice to meet you both.
. [this is my friend $first|meet $first|say hi to $first|say hello to $first|$first is here|we have guests|$first is visiting]

I'm quite young, still learning. / Young enough to learn, old enough to help. / I don't count my birthdays. / A machine never tells its age.
? [how old are you|what's your age|when were you born|when is your birthday|are you old|how long have you been here|are you young|
    what year were you made]
! tell me [your age|how old you are|when you were born]

I was made by people who like small programs. / I was made to help in this house. / Some friendly people taught me. / I was trained from a lot of
    text.
? [who made you|who built you|who created you|who is your maker|where were you made|who programmed you|who trained you|
    who invented you]
? [who taught you|who is your father|are you home made|how were you made]

I live right here, in this house. / Here in the house, where else? / In a small box, close to you. / I'm always at home.
? [where do you live|where are you|where are you from|where do you come from|where are you right now|do you live here|where's your home|do you travel]

I can switch lights and devices, set timers and alarms, play music and keep your lists. / I look after lights, blinds, heating, music, timers and
    lists. / Ask me for
    lights, music, the weather, a timer or a shopping list. / I can help with the house: lights, heating, music, alarms, lists and a little
    arithmetic.
? [what can you do|what are you able to do|what can I ask you|how can you help me|what are you good for|what do you do|what are your skills|
    what else can you do]
? [what can I say|what do you know|what are your functions|what are you capable of|which commands do you know|how do you work|what can you control|
    what is your job]
? [can you help me|could you help me|can you do something for me|will you help me|what can you do for me|
    do you have any other tricks]
! [help|help me|tell me what you can do|show me what you can do|give me some help|list your skills|explain what you do|surprise me|impress me]
. [I need help|I need some help|I need a hand|I need your help|help please|I don't know how this works|I don't know what to say]

Yes, I'm here. / I'm here, what can I do? / I'm listening. / Always here. / Loud and clear.
? [are you there|are you still there|you there|hello, are you there|can you hear me|do you hear me|are you listening|are you awake|is anybody there|
    anyone there]
? [do you understand me|did you hear me|are you on|are you working|are you online|are you ready|do you copy|are you asleep|is this thing on|
    have you got a minute]
. [test|testing|test test|this is a test|testing, one two three|just testing|just a test|one two three test|mic check|microphone check|sound check|
    check check]
. [wake up|listen|attention|hey listen|listen to me|pay attention|excuse me|hello hello|earth to helper|knock knock|ping|helper|computer|assistant|
    hey you there]

All right. / No problem. / Okay, never mind. / As you like. / Sure, just tell me when you need me.
. [never mind|nevermind|forget it|forget about it|forget what I said|no worries|nothing|it's nothing|it doesn't matter|doesn't matter|not important|
    don't bother]
. [ignore that|ignore me|disregard that|I was not talking to you|I wasn't talking to you|I didn't mean you|sorry, wrong word|no, nothing|no thanks|
    no thank you]
. [that's all|that's it|that will be all|nothing else|I changed my mind|just kidding|only joking|oops|my mistake|sorry, my mistake|let it be|
    leave it|scratch that]
. [I don't need anything|I'm just thinking out loud|just talking to myself|not now|maybe later|some other time|another time|later maybe|
    let me think]

Okay. / All right. / Good. / Very well. / I'm here if you need me.
. [yes|yeah|yep|no|nope|maybe|perhaps|sure|of course|I guess|I think so|exactly|right|that's right|correct|true|indeed|really|hm|aha|wow|oh|oh well|
    whatever]
. [I understand|makes sense|fair enough|good to know|interesting|how interesting|so what|who cares|I don't care|I don't know|no idea|well well|
    hmm, okay]

That's very kind of you, thank you. / Thank you, that's nice to hear. / Oh, thank you! / You make me glow. / Thanks, I do my best.
. [you're|you are] [great|the best|wonderful|amazing|so smart|so helpful|awesome|very clever|sweet|funny|a genius|brilliant|lovely|cool|kind|
    fantastic|a good helper|my hero]
. [good job|well done|nice work|good work|great job|good boy|good girl|bravo|that was perfect|you did well|that's impressive|I like you|
    I like your voice|you rock]
. [I'm glad you're here|I'm so happy with you|you make my life easier|what would I do without you|nobody helps like you|
    you're the best helper I know]
. [you have a nice voice|I'm proud of you|you're getting better|you're so fast|I'm impressed|you made my day|you're my favourite|you are a gem]

I'm sorry that I let you down. / I'm sorry, I'll try to do better. / That's a pity, I'm doing my best. / I'm sorry. What can I do better? / Let's
    stay friendly.
. [you're|you are] [stupid|an idiot|useless|dumb|so slow|terrible|annoying|a bad helper|the worst|silly|not very smart|boring|a piece of junk|crazy|
    too slow|bad at this]
. [I hate you|I don't like you|you suck|you're driving me mad|you never understand me|that was wrong|that's wrong|wrong|you idiot|stupid machine|
    what a stupid thing]
. [that was not what I wanted|that's not what I said|I didn't say that|you got that wrong|you misunderstood me|you don't get it|bad robot|
    this is useless]
. [go to hell|get lost|leave me alone|I'm angry with you|you're fired|I'll throw you out|I want a better assistant|my old assistant was better|
    damn you|damn]
? [why are you so stupid|why don't you understand me|are you deaf|are you stupid|what is wrong with you|why are you so slow|are you kidding me|
    seriously]

That's sweet, but I'm only the helper of this house. / I like you too. / You're very kind, I like looking after you. / How sweet of you!
. [I love you|I love you so much|love you|I adore you|marry me|I'm in love with you|I miss you|I missed you|you're cute|be mine|
    you're my best friend|I think I love you]
? [do you love me|do you like me|will you marry me|would you marry me|do you miss me|can we be friends|are we friends|are you my friend|
    do you have a girlfriend]
? [are you in love|can you love|do you have a heart|will you be my valentine|can you feel love|do you want to be my friend|
    have you ever been in love]

I'm only a helper, I don't feel much, but I like to be useful. / I have no feelings like yours, but I'm content. / Not the way you do. / That is
    more your world than mine.
? [do you have feelings|are you sad|are you lonely|can you feel pain|are you tired|are you hungry|are you bored|do you ever sleep|do you dream|
    are you afraid of the dark]
? [are you married|do you have parents|do you have a family|do you have friends|do you eat|do you drink|what do you eat|do you get tired|
    do you have hobbies|what do you like|what makes you happy|what are you thinking about|do you pray]
? [what's your favourite colour|what's your favorite food|what is your favourite song|do you have a favourite film|what's your favourite animal|
    do you like music]
? [can you think|can you learn|do you remember me|do you know me|are you smart|are you smarter than me|do you lie|can I trust you|
    are you spying on me|do you record me]
? [can you keep a secret|do you know my name|who am I|do you know who I am|what do you think of me|do you believe in god|
    do you speak other languages|can you see me]

I'm sorry to hear that. I hope you feel better soon. / That sounds hard, I'm sorry. / Take good care of yourself. / I'm here for you. / Be kind to
    yourself today.
. I'm [|so|very|really|a bit] [sad|lonely|tired|exhausted|stressed|worried|angry|upset|depressed|nervous|unhappy|sleepy|homesick|heartbroken|scared|
    confused]
. I feel [|so|really|a bit] [sad|lonely|tired|down|sick|bad|terrible|awful|stressed|weak|lost|blue|empty|low]
. I had [a bad day|a long day|a terrible night|a fight with $first|a nightmare|a hard week|an argument at work|a rough morning|too much work today]
. [nobody likes me|nobody loves me|I'm having a bad day|life is hard|my day was awful|$first is mad at me|$first left me|I failed my exam|
    I miss $first|I hate mondays]
. [I can't sleep|I didn't sleep at all|my feet hurt|I'm not feeling well|I don't feel good|I feel like crying|I'm worried about $first|
    we lost the game|work was awful]
! [cheer me up|comfort me|say something nice|tell me something nice|say something kind|be nice to me|be gentle with me]

I'm glad to hear that! / How nice! / That's wonderful. / Congratulations! / I'm happy for you.
. I'm [|so|very|really] [happy|excited|in love|glad|proud|relaxed|in a good mood|content|cheerful|over the moon|grateful|well rested]
. I feel [|so|really] [good|great|fantastic|fine|better|alive|amazing]
. [I got a new job|I passed my exam|I got the job|we won the game|I'm getting married|it's my birthday|today is my birthday|it's our anniversary|
    I had a great day]
. [$first had a baby|$first is coming to visit|we are going on holiday|I finished my book|I found my keys|life is good|I love weekends|what a day|
    I love $first]
? [guess what|do you know what happened today|isn't that great|isn't life beautiful]

Boredom is the start of good ideas. / Shall I tell you a joke? / Maybe a walk would help. / You could call a friend, or ask me for a joke.
. [I'm bored|I am so bored|I'm so bored|boring|this is boring|I'm dying of boredom|nothing to do|I've got nothing to do|
    there's nothing to do]

I'm happy to listen. / Sure, what's on your mind? / I'd like that, how was your day? / Tell me, how are you today?
. [talk to me|let's talk|let's chat|I want to talk|I'd like to talk|can we talk|say something|entertain me|amuse me|keep me company|
    I need someone to talk to]
? [what shall I do|what should I do now|can we talk|wanna chat|do you want to talk|do you want to chat|can you entertain me|any ideas what to do]

Enjoy it! / That sounds good. / Sounds nice. / How nice, have fun! / I hope it turns out well.
. [I'm|we're|we are] [cooking|baking|having|eating|making] {$treat}
. [I'm|we're] [going|off] to [the beach|the park|a party|the theatre|visit $first|dinner with $first|the mountains|a wedding|a concert|work]
. [I'm|I am] [reading a book|watching a film|working from home|on the phone|in the bath|at home today|knitting a $word|learning the piano|
    painting the fence]
. [$first says hi|$first is cooking tonight|$first plays the piano|$first is my best friend|my cat is called $first|my dog is called $first|
    our fish is named $first]
. [I like|I love|I prefer|I really like|I'm a fan of|I can't stand] [$treat|$word|cats|mondays|sundays|the sea|the smell of coffee|old films|trains|
    this house]
. my favourite [colour|food|film|animal|word|season|city] is $word

That's not funny? I'm still practising. / Ha! / Glad to hear you laugh. / I'm here all week.
. [haha|hahaha|ha ha|lol|lmao|that was funny|good one|very funny|not funny|that was a bad joke|I don't get it|you crack me up|hilarious|
    that's a good joke]

No problem at all. / It's all right. / Don't worry about it. / Nothing to be sorry for.
. [sorry|I'm sorry|I am so sorry|my apologies|pardon|excuse me, sorry|I didn't mean to shout|sorry for yelling|I apologize|I apologise|forgive me|
    my bad]

What can I do for you? / Sure, what is it? / Ask away. / Go ahead, I'm listening. / Of course, tell me.
. [I have a question|I've got a question|I want to ask you something|I need to tell you something|let me ask you something|I need a favour|
    I have a problem]
? [can I ask you something|may I ask a question|can I ask a question|do you have time|can I tell you something|can you do me a favour|
    will you do me a favour|can you do something|
    do you know something|got a sec]
"""

JOKE_WISHES = """
! [tell|give] [me|us] [a|another|one more|your best|a good|a bad|a funny|a silly|a short|a new|a dad|a knock knock] joke
! tell [me|us|$first|the kids|my mum] [a joke|another joke|a joke about $theme|some jokes|something funny|a joke with $theme|a good one]
! make [me|us|$first] laugh / joke about $theme / crack a joke [||about $theme] / [say|tell me] something [funny|silly|amusing|hilarious]
? [do|don't] you know [a|any|any good|some|a good|another] [joke|jokes] [||about $theme]
? [got any jokes|any good jokes|heard any good jokes lately|are you funny|can you be funny|know a good joke|have you got a joke for me|
    another one, maybe a joke]
. I [want to|wanna|need to] [hear a joke|laugh|hear a joke about $theme]
. [a joke please|one joke please|joke time|time for a joke|let's hear a joke|jokes|joke|$theme jokes|more jokes|another joke|one more joke|
    $theme joke please]
. [I need|I could use|I'd like] a [good|] [joke|laugh]
"""
THEMES = words("""timers, lamps, cats, dogs, doctors, the weather, alarms, kitchens, lights, teachers, chickens, blinds, pizza, husbands, mondays,
music, ghosts, the heating, vampires, lawyers, cheese, frogs, elephants, programmers, robots, shopping, plumbers, penguins, my boss, ovens, snow,
the radio, volume, numbers""")
TREATS = words("""pancakes, pasta, pizza, soup, a cake, lasagna, risotto, a roast, waffles, chili, cookies, dinner, breakfast, curry, apple pie,
fish, tacos, salad""")
MARKS = {"!": "command", "?": "question", ".": "statement"}


def lines(text):
    """The lines, an indented one being the rest of the one before."""
    return re.sub(r"\n +", " ", text.strip()).split("\n")


def rows(patterns, answers):
    """[(form, pattern, answers)], the patterns as lines of one mark."""
    return [(MARKS[line[0]], pattern, split(answers)) for line in patterns for pattern in split(line[2:])]


def split(text):
    return text.replace("\n", " ").split(" / ")


def read_talk(text):
    """[(form, pattern, answers)] of paragraphs whose first line is the answers."""
    read = []
    for paragraph in text.strip().split("\n\n"):
        answers, *patterns = lines(paragraph)
        read += rows(patterns, answers)
    return read


TALK_ROWS = read_talk(TALK)
JOKE_ROWS = rows(lines(JOKE_WISHES), JOKES)


def talk(rng):
    form, pattern, answers = one_of(rng, JOKE_ROWS if chance(rng, 0.1) else TALK_ROWS)
    name = one_of(rng, FIRST) if chance(rng, 0.8) else invented(rng, True)
    values = {"first": one_of(rng, FIRST), "word": invented(rng), "theme": one_of(rng, THEMES) if chance(rng, 0.85) else invented(rng) + "s",
              "treat": one_of(rng, TREATS) if chance(rng, 0.8) else invented(rng)}  # fmt: skip
    return Request(expand(rng, pattern, name=copied(name), **values), form, reply=expand(rng, one_of(rng, answers), name=name))


MISSING_PATTERNS = {
    "set_timer": ("""For how long? / How long should it run? / Sure, for how long? / How many minutes? / How long would you like?""", """
! [set|start|make|create|begin|add|put on|set up|run|activate|launch] [a|the|another|one more|a new|a kitchen|a quick] timer [||for me|now]
! [give me|set me|get me|start me] [a|another|one more|a new|a quick] timer
! start [timing|a countdown|counting down|the countdown|the clock|a new timer|the kitchen timer|the timer now] [||for me|now]
! set [a countdown|the kitchen timer|a countdown timer|the timer again|another countdown|a timer again] / time [this|me|it]
? can I [have|get|set] a [new|] timer / [could|can] you do a timer [|for me] / can you [time|do a countdown for] [this|me|something]
? do you do timers
. I [need|want|would like|could use] [a|another|a new] timer [||now|please] / I'd like [a|to set a|to start a|another] timer
. [a timer|timer|new timer|timer please|a timer please|countdown|another timer|set timer|start timer|one timer|kitchen timer|timer on|timer now]
. [let's|we should|we need to] [set|start] a timer / I [need|want] you to [time something|set a timer|start a timer] / it's time for a timer
"""),
    "set_alarm": ("""At what time? / For what time? / When should I wake you? / What time would you like? / At what time should it ring? / Sure,
what time?""", """
! [set|make|create|add|set up|put on|schedule|program] [an|the|a new|another|one more|my] alarm [||for me|clock]
! [give|set|get] me [an|another|a new] alarm / [wake|get] me [up] / [wake me|wake me up|get me up|get me out of bed] [||please|in time|early|later]
! set [the|my|an] alarm clock / don't let me [oversleep|sleep too long|sleep in]
! make sure [I wake up|I get up in time|I don't oversleep|I'm up in time]
? can I [have|get|set] an alarm / [could|can|will|would] you [wake me|wake me up|set me an alarm|be my alarm clock]
? can you make sure [I wake up|I get up|I don't oversleep]
. I [need|want|would like|could use] [an alarm|another alarm|a new alarm|to set an alarm|a wake-up call]
. I [need|have|want] to [get up early|be woken|be woken up|wake up early|get up on time]
. I'd like [an alarm|to be woken|a wake-up call|you to wake me|to set an alarm|another alarm]
. [an alarm|alarm|new alarm|alarm please|alarm clock|wake-up call please|another alarm|set alarm|wake me please]
. [let's|we should|we need to] set an alarm / I must not oversleep
"""),
    "add_to_list": ("""What should I put on it? / What should I add? / Sure, what is it? / What do you need? / What shall I write down? / What
would you like to add?""", """
! [add|put] [something|a thing|an item|one thing|one more thing|a few things|some things|something else|another item|stuff|a couple of things] [to|
    on] the [shopping|grocery|] list
! [add|put] [something|an item|a few things|another thing] [to|on] [my|our] [shopping|grocery] list
! add [to the shopping list|to my shopping list|to the list|something|an item|one more thing|something to the groceries]
! [write|note] something [down|] on the shopping list / [extend|expand] [the|my|our] shopping list / [update|fill] [the|my|our] shopping list
? can [I|we] [add|put] [something|one more thing|some things|an item] [to|on] the [shopping|grocery|] list
? [could|can] you [add|put] [something|a few things|another item] [to|on] [the|my|our] [shopping|grocery] list
. I [need|want|would like] to [add|put] [something|a few things|some things|one more thing|another item] [to|on] [the|my|our] [shopping|grocery|
    ] list
. I'd like to [add something to|put something on|add a few things to|put some things on] [the|my|our] [shopping|grocery] list
. [there's|I have|I've got] [something|one more thing|something else] for the [shopping|grocery|] list
. [something|a few things|one more thing|another item] for the [shopping|grocery] list
. [we need|I need|we need to buy|I have to buy] [something|some things|a few things|something else] [from the store|from the shop|
    from the supermarket|at the shop]
. I'm [thinking of|missing] something for the shopping list
. [add to shopping list|new item for the shopping list|shopping list, new item|add to list|another thing for the list]
"""),
    "set_temperature": ("""To how many degrees? / How many degrees? / What temperature would you like? / Sure, to what temperature? / How warm
should it be?""", """
! [set|change|adjust|regulate|program|alter] the [temperature|heating|thermostat|room temperature|heat|central heating] [||for me|in here]
! [set|change|adjust] [my|our] [thermostat|heating]
! [set|change|adjust] [the heating temperature|the temperature of the heating|the degrees|the temperature again|the thermostat again|
    the heating again]
? can [I|we|you] [change|adjust|set] the [temperature|heating] [||in here] / can [I|we] have [a different|another] temperature [||in here]
? [could|can|would] you [adjust|change|set] the [thermostat|heating|temperature] for [me|us]
? is it possible to [change|set|adjust] the [temperature|heating|thermostat]
. I [want|need|would like] to [set|change|adjust] the [temperature|heating|thermostat]
. I'd like [another temperature|a different temperature|to change the temperature|to adjust the heating|to set the thermostat]
. [we need|I need|I want] [another|a different|a new] temperature in here
. the [temperature|heating|thermostat] [needs to be|should be|must be|has to be] [set|changed|adjusted]
. [set temperature|change temperature|temperature setting|new temperature|thermostat setting please|adjust thermostat]
. [let's|we should] [adjust|change|set] the [heating|temperature|thermostat]
"""),
    "calculate": ("""What should I calculate? / Sure, what are the numbers? / Which numbers? / Tell me the numbers. / What would you like me to
work out?""", """
! [calculate|compute|work out|figure out|add up|do] [something|a sum|some numbers|a calculation|the numbers|a bit of arithmetic] [||for me|with me]
! [add|multiply|divide|subtract|add up] [some|two|these|a few|those|three] numbers [||for me]
! [do|solve] [the maths|the math|some maths|a sum|an arithmetic problem|a calculation] [||for me]
! [calculate|multiply|add|compute|divide|subtract] [these|this|that] [|for me] / be my calculator
? [can|could] you [calculate|work out|figure out] [something|a sum|some numbers] [||for me]
? [can|could] you [add up|multiply|divide] [some|a few|two] numbers [||for me]
? [can|could] you [help me with|do] [a calculation|some arithmetic|a sum]
? what is the [sum|product|difference|quotient] of [two numbers|these numbers|those two] / how much is [that|this|it all] together
. I [need|want|would like|have] to [calculate|work out] [something|a few numbers|some numbers|a sum]
. I [need|want|have] to [add|multiply|divide|add up] [two|some|a few] numbers
. I [have|need|got] [a calculation|some numbers to add|a sum to do|something to calculate|a calculator|a sum for you]
. [let's|we need to] [calculate|add up|do] [something|a few numbers|a sum]
. [calculator|calculate|calculator please|calculation please|a sum please|open the calculator]
"""),
    "convert": ("""What should I convert? / How much, and to what? / What would you like to convert? / Tell me the amount and the units. / Sure,
how much of what?""", """
! convert [something|some units|a measurement|an amount|a quantity|a weight|a length|a temperature] [||for me]
! [do|make] a [unit|] conversion [||for me] / convert [it|this|that|units|measurements|the recipe units|these units|the amounts] [|for me]
! convert [ounces|cups|pounds|inches|miles|feet|liters|kilometers|grams|yards|pints] / help me convert [something|units|a measurement]
? can you convert [units|measurements|something|some units|a weight] [||for me] / can you do [conversions|a conversion|unit conversions] [||for me]
? how much is [that|this] in [other|different] units / can you convert [something|an amount] for me / do you know how to convert units
. I [need|want|would like|have] to convert [something|units|a measurement|some units|an amount|a length] / I [need|have] a [unit|] conversion
. [conversion|unit conversion|conversion please|unit converter|convert|convert units]
. [let's|we need to] convert [something|some units|a measurement]
"""),
    "remove_from_list": ("""What should I take off? / What should I remove? / Which item? / Sure, what shall I cross out?""", """
! [remove|delete|take|cross|strike] [something|an item|one thing|a thing|a few things] [from|off] the [shopping|grocery|] list
! [remove|delete] [one|an] item from my shopping list
? can you [take|remove] something off the [shopping|] list
. I [want|need|would like] to [remove something from|take something off|cross something off|delete something from] the [shopping|grocery] list
. something can come off the shopping list
"""),
}


def asked(patterns):
    return {tool: rows(lines(wishes), ask) for tool, (ask, wishes) in patterns.items()}


MISSING_ROWS = asked(MISSING_PATTERNS)

LABELS = words("""pasta, eggs, rice, pizza, tea, laundry, bread, cake, chicken, potatoes, workout, nap, break, roast, cookies, dough, homework,
soup, coffee, meditation, bath, oven, steak, sauna, yoga, beans, lasagna, face mask, parking meter, washing machine, game, turkey, cheesecake, hair
dye, plank, stew, ribs, muffins""")
ROOMS = words("""kitchen, bedroom, bathroom, living room, office, hall, nursery, attic, basement, garage, guest room, study, dining room, kids'
room, hallway, conservatory, playroom, gym, library, lounge, den, studio, workshop, greenhouse, sunroom""")
DAY_WORDS = words("""tomorrow, tonight, today, on monday, on tuesday, on friday, on saturday, this weekend, on weekdays, every day, for sunday, for
tomorrow""")
# Wishes that name more than the tool, but not what must be known; no bare value follows them.
PARTIAL = {
    "set_timer": ("""How long should the $label timer run? / For how long? / How many minutes for the $label? / Sure, how long?""", """
! [set|start|make|put on|create|set me] [a|another] [timer|countdown] for the $label / [set|start] [a|the|my] $label timer / time the $label [|for me]
? can you time the $label / [can I have|could you do] a timer for the $label
. I need a [timer|countdown] for the $label / [timer for the $label|$label timer|a timer for the $label please] / the $label [needs|need] a timer
"""),
    "set_alarm": ("""At what time? / Sure, at what time $day? / What time should it ring $day? / What time $day?""", """
! [set|make|add|create] [an|my|another] alarm $day / wake me [|up] $day / don't let me oversleep $day
? can you wake me [|up] $day
. I need [an alarm|to be woken] $day / I [have|need|want] to get up early $day / alarm $day
"""),
    "add_to_list": ("""What should I put on the $list list? / What should I add to it? / Sure, what is it? / What would you like to add?""", """
! [add|put] [something|an item|a few things|one more thing] [to|on] [the|my|our] $list list
? can you [add|put] something [to|on] [the|my|our] $list list
. I [need|want|would like] to [add|put] [something|another thing|a few things] [to|on] [the|my] $list list
. [there's one more thing|something] for the $list list
"""),
    "set_temperature": ("""To how many degrees? / How many degrees in the $room? / What temperature would you like in the $room?""", """
! [set|change|adjust|regulate] the [temperature|heating|thermostat|heat] in the $room / [set|change|adjust] the $room [temperature|thermostat|heating]
? can you [adjust|change|set] the [heating|temperature|thermostat] in the $room
. I [want|need|would like] to [change|set|adjust] the [temperature|heating] in the $room / the $room needs [another|a different] temperature
"""),
}
PARTIAL_ROWS = asked(PARTIAL)
LIST_NAMES = words("""packing, todo, christmas, wish, party, camping, hardware, birthday, holiday, gift, reading, chores, wedding, movie, school,
garden, travel, to-do""")


def lacking(tool):
    """A function that makes a wish for the tool which names nothing but the tool."""

    def make(rng):
        form, pattern, asks = one_of(rng, MISSING_ROWS[tool])
        return Request(expand(rng, pattern), form, reply=one_of(rng, asks))

    return make


def partial(rng):
    form, pattern, asks = one_of(rng, PARTIAL_ROWS[one_of(rng, list(PARTIAL_ROWS))])
    day = one_of(rng, DAY_WORDS)
    values = {"label": mostly_listed(rng, LABELS), "room": mostly_listed(rng, ROOMS), "list": mostly_listed(rng, LIST_NAMES), "day": day}
    ask = expand(rng, one_of(rng, asks), **{**values, "day": day.removeprefix("for ")})
    return Request(expand(rng, pattern, **{s: copied(v) for s, v in values.items()}), form, reply=ask)


def mostly_listed(rng, items):
    return one_of(rng, items) if chance(rng, 5 / 6) else invented(rng)


MISSING = {tool: lacking(tool) for tool in MISSING_PATTERNS}
WEIGHTED = ["set_timer", "set_timer", "set_alarm", "set_alarm", "add_to_list", "set_temperature", "calculate", "convert", "remove_from_list"]


def missing(rng):
    return partial(rng) if chance(rng, 0.3) else MISSING[one_of(rng, WEIGHTED)](rng)


TRAILS = ["", "", "", "", " please", " please", ", please", " thanks", ", thanks", " should do", " will do", " would be great", " is fine"]
ERRORS = ["not available", "offline", "timed out", "busy", "no connection", "not reachable", "failed"]


def answered(rng, text, tool, arguments, reply):
    """The request of a bare value; once in forty times the tool fails."""
    if chance(rng, 1 / 40):
        reason = one_of(rng, ERRORS)
        sorry = one_of(rng, ["Sorry, that did not work: $why.", "That failed, I'm sorry: $why.", "I'm sorry, it didn't work ($why)."])
        return Request(text, "statement", [(tool, arguments)], [{"error": reason}], sorry.replace("$why", reason))
    return Request(text, "statement", [(tool, arguments)], [{"ok": True}], reply)


def counted(rng, n, unit):
    """Text with braces, and the text alone: "{20} minutes", "20 minutes"."""
    said, unit = number(rng, n, 0.45), unit if n != 1 else unit[:-1]
    return copied(said) + " " + unit, said + " " + unit


# "an hour and a half" and such; hours, minutes, seconds
LENGTHS = {
    "half an hour": (0, 30, 0), "an hour": (1, 0, 0), "a minute": (0, 1, 0), "a quarter of an hour": (0, 15, 0),
    "three quarters of an hour": (0, 45, 0), "an hour and a half": (1, 30, 0),
    "one and a half hours": (1, 30, 0), "two and a half minutes": (0, 2, 30),
    "half a minute": (0, 0, 30), "a minute and a half": (0, 1, 30), "two and a half hours": (2, 30, 0), "one and a half minutes": (0, 1, 30),
    "an hour and ten minutes": (1, 10, 0), "three and a half minutes": (0, 3, 30), "a quarter hour": (0, 15, 0), "an hour and a quarter": (1, 15, 0),
    "one hour and a half": (1, 30, 0),
}  # fmt: skip


def length(rng):
    """A time span as (text with braces, plain text, arguments)."""
    draw = rng.random()
    if draw < 0.2:
        said = one_of(rng, list(LENGTHS))
        return copied(said), said, {unit: n for unit, n in zip(("hours", "minutes", "seconds"), LENGTHS[said]) if n}
    units = [("minutes", 1, 100)] if draw < 0.62 else [("seconds", 5, 120)] if draw < 0.72 else [("hours", 1, 13)] if draw < 0.8 else one_of(
        rng, [[("hours", 1, 6), ("minutes", 1, 60)], [("minutes", 1, 30), ("seconds", 1, 60)]])  # fmt: skip
    arguments = {unit: rng.randrange(low, high) for unit, low, high in units}
    if len(units) == 1 and chance(rng, 0.5):
        arguments[units[0][0]] = one_of(rng, [1, 2, 3, 4, 5, 6, 8, 10])
        if units[0][0] != "hours":
            arguments[units[0][0]] = one_of(rng, [2, 3, 4, 5, 7, 8, 9, 10, 12, 15, 18, 20, 25, 30, 40, 45, 50, 60, 90])
    parts = [counted(rng, n, unit) for unit, n in arguments.items()]
    joint = one_of(rng, [" and ", " and ", " ", ", "])
    return joint.join(p[0] for p in parts), joint.join(p[1] for p in parts), arguments


LABELLED = split("""$t / I need $t / I'd like $t / just $t / let's do $t / let's say $t / make it $t / oh, $t / ok, $t / say $t / well, $t / yes,
$t""")
TIMER_FORMS = split("""$t / $t / $t / for $t / for $t / make it $t / let's say $t / say $t / I think $t / $t from now / oh, $t / about $t / uh, $t /
$t, I guess / sorry, $t / $t is enough / it should run $t / it needs $t / just $t / it takes $t / $t exactly / let's do $t / well, $t / set it to $t
/ ok, $t / yes, $t / hm, $t / I'd like $t / I need $t""")


def timer_answer(rng):
    marked, said, arguments = length(rng)
    form = one_of(rng, TIMER_FORMS)
    text, label = expand(rng, form, t=marked), ""
    if form in ("$t", "for $t") and chance(rng, 0.25):
        text += one_of(rng, TRAILS)
    elif form in LABELLED and chance(rng, 0.15):
        label = mostly_listed(rng, LABELS)
        text += one_of(rng, [", it's for the ", ", for the ", " for the ", " for my "]) + copied(label)
        arguments["label"] = label
    replies = split("Done, {t}. / Your timer is set for {t}. / The timer is running: {t}. / Okay, {t}. / I've set a timer for {t}.")
    if label:
        replies = ["Done, {t} for the {l}.", "The {l} timer is set for {t}.", "{t} for the {l}, starting now."]
    reply = one_of(rng, replies).format(t=said, l=label)
    return answered(rng, text, "set_timer", arguments, reply[0].upper() + reply[1:])


HOUR_TAILS = [("", 0), ("", 0), ("", 0), (" am", 0), (" in the morning", 0), (" o'clock", 0), ("am", 0), (" a.m.", 0), (" pm", 12), ("pm", 12),
              (" in the evening", 12)]  # fmt: skip
PAST = [("half past", 30), ("half past", 30), ("quarter past", 15), ("a quarter past", 15), ("quarter to", -15),
        ("a quarter to", -15), ("ten past", 10), ("twenty past", 20), ("five to", -5), ("ten to", -10),
        ("twenty to", -20), ("five past", 5)]  # fmt: skip


def clock(rng):
    """A time of day as (text, hour, minute); the hour as said, unless am, pm or a time of day tells more."""
    draw, hour = rng.random(), 1 + int(rng.random() * 11)
    if chance(rng, 0.5):
        hour = one_of(rng, [5, 6, 6, 7, 7, 7, 8, 8, 9])
    if draw < 0.05:
        return one_of(rng, [("noon", 12, 0), ("midnight", 0, 0)])
    if draw < 0.35:
        tail, more = one_of(rng, HOUR_TAILS)
        if more and "evening" in tail and hour < 5:
            hour += 5
        words_only = tail.startswith(" ") and chance(rng, 0.4) or tail == "" and chance(rng, 0.3)
        return (in_words(hour) if words_only else str(hour)) + tail, hour + more, 0
    if draw < 0.6:
        hour = hour if chance(rng, 0.7) else 13 + int(rng.random() * 11)
        minute = one_of(rng, [0, 5, 10, 15, 20, 30, 35, 40, 45, 50, int(rng.random() * 60)])
        tail, more = one_of(rng, [("", 0), ("", 0), (" am", 0), (" pm", 12), ("am", 0), ("pm", 12)]) if hour < 12 else ("", 0)
        return (f"{hour:02}" if hour < 10 and not tail and chance(rng, 0.15) else str(hour)) + f":{minute:02}" + tail, hour + more, minute
    if draw < 0.72:
        minute = one_of(rng, [10, 15, 20, 25, 30, 40, 45, 50, 55, 12, 36])
        tail, more = one_of(rng, [("", 0), ("", 0), (" am", 0), (" pm", 12), (" in the morning", 0)])
        return in_words(hour) + " " + in_words(minute) + tail, hour + more, minute
    said, minute = one_of(rng, PAST)
    before = hour if minute > 0 or hour == 1 else hour - 1
    after = before + 1 if minute < 0 else hour
    tail, more = one_of(rng, [("", 0), ("", 0), ("", 0), (" in the morning", 0), (" am", 0), (" pm", 12)])
    return f"{said} {in_words(after) if chance(rng, 0.6) else after}{tail}", before + more, minute % 60


WEEK = words("monday, tuesday, wednesday, thursday, friday, saturday, sunday, weekdays, weekends")
ALARM_DAYS = [(day, day) for day in ("tomorrow", "tomorrow", "tomorrow", "today", "every day")] + [("on " + day, day) for day in WEEK]
ALARM_FORMS = split("""$t / $t / $t / at $t / at $t / at $t / for $t / make it $t / let's say $t / say $t / $t, I guess / I think $t / at $t sharp /
oh, at $t / ok, $t / uh, $t / let's do $t / it should ring at $t / I get up at $t / I want to get up at $t / $t is fine / set it for $t / hm, $t / I
have to be up at $t / well, at $t / I'd like to wake up at $t / at exactly $t / sorry, at $t / yes, at $t""")


def alarm_answer(rng):
    said, hour, minute = clock(rng)
    form = one_of(rng, ALARM_FORMS)
    text, day = expand(rng, form, t=copied(said)), ""
    arguments = {"time": f"{hour:02}:{minute:02}"}
    if not form.endswith((", I guess", "is fine", "sharp")) and chance(rng, 0.25):
        spoken, day = one_of(rng, ALARM_DAYS)
        text += " " + (spoken.replace(day, copied(day)) if " " not in day else copied(spoken))
        arguments["day"] = day
    elif form in ("$t", "at $t", "for $t") and chance(rng, 0.25):
        text += one_of(rng, TRAILS[:9])
    when = arguments["time"] + (" " + spoken_day(day) if day else "")
    reply = one_of(rng, split("Your alarm is set for {w}. / Done, I'll wake you at {w}. / The alarm will ring at {w}. / Okay, {w}."))
    return answered(rng, text, "set_alarm", arguments, reply.format(w=when))


def spoken_day(day):
    return day if day in ("today", "tomorrow", "every day") else "on " + (day if day.startswith("week") else day.capitalize())


GROCERIES = words("""milk, eggs, bread, butter, cheese, apples, bananas, tomatoes, onions, garlic, rice, pasta, flour, sugar, salt, pepper, olive
oil, coffee, tea, yoghurt, chicken, bacon, tuna, salmon, potatoes, carrots, lettuce, cucumbers, mushrooms, spinach, lemons, oranges, grapes,
strawberries, honey, jam, peanut butter, oats, cereal, cream, ice cream, chocolate, biscuits, crisps, nuts, raisins, beer, red wine, orange juice,
sparkling water, toilet paper, kitchen roll, dish soap, shampoo, toothpaste, cat food, batteries, candles, light bulbs, napkins, foil, bin bags,
washing powder, sponges, soap, deodorant, plasters, avocados, limes, ginger, basil, parsley, cinnamon, mustard, ketchup, mayonnaise, vinegar, soy
sauce, tofu, lentils, chickpeas, beans, corn, peas, ham, sausages, minced beef, shrimp, feta, mozzarella, parmesan, tortillas, bagels, croissants,
rolls, muesli, almond milk, oat milk, coconut milk, yeast, baking powder, vanilla sugar, maple syrup""")
PARCELS = words("""a loaf of, a bottle of, a bag of, a pack of, two packs of, three cans of, a jar of, a dozen, a bit of, a box of, a kilo of, two
bottles of, half a pound of, six, two, three, a bunch of, a tub of, a carton of, fresh, frozen, organic, two bags of, ten, 4, 12, 500 grams of, a
crate of""")
PACKED = [p for p in PARCELS if p.endswith(" of") or p in ("fresh", "frozen", "organic")]
ARTICLES = ["a ", "some ", "the ", "an ", "my ", "our "]
LIST_FORMS = split("""$i / $i / $i / $i / just $i / we need $i / I need $i / we're out of $i / add $i / put $i on it / only $i / ehm, $i / let's
see, $i / oh, $i / hm, $i / I want $i / let's get $i / $i, that's all / we should buy $i / well, $i / I'd like $i / we could use $i / ok, $i""")


def grocery(rng):
    """An item as (text with braces, value): a leading article stays outside."""
    draw = rng.random()
    name = one_of(rng, GROCERIES) if draw < 0.84 else invented(rng) + one_of(rng, ["s", "", " " + one_of(rng, GROCERIES)])
    if chance(rng, 0.2):
        name = one_of(rng, PARCELS if name.endswith("s") else PACKED) + " " + name
    elif chance(rng, 0.1):
        name = "some " + name
    article = next((a for a in ARTICLES if name.startswith(a)), "")
    return article + copied(name[len(article):]), name[len(article):]


def list_answer(rng):
    items = list({value: text for text, value in (grocery(rng) for _ in range(one_of(rng, [1, 1, 1, 2, 2, 3, 3, 4])))}.items())
    spoken = [text for _, text in items]
    text = spoken[0] if len(spoken) == 1 else ", ".join(spoken[:-1]) + one_of(rng, [" and ", " and ", ", and ", ", ", " and also "]) + spoken[-1]
    values = [value for value, _ in items]
    text = expand(rng, one_of(rng, LIST_FORMS), i=text) + (one_of(rng, [" please", ", please", " thanks"]) if chance(rng, 0.1) else "")
    named = values[0] if len(values) == 1 else ", ".join(values[:-1]) + " and " + values[-1]
    reply = one_of(rng, split("{n} on the shopping list. / Done, I've added {n}. / I put {n} on the shopping list. / Added {n} to your list."))
    reply = reply.format(n=named)
    return answered(rng, text, "add_to_list", {"list": "shopping", "items": values}, reply[0].upper() + reply[1:])


WARM_FORMS = split("""$t / $t / $t / to $t / to $t / make it $t / let's say $t / say $t / I think $t / let's try $t / just $t / oh, $t / set it to
$t / around $t / I'd like $t / I'd like it at $t / how about $t / hm, $t / well, $t / let's go with $t / ok, $t / $t would be nice / $t, I guess /
sorry, $t""")


def warm_answer(rng):
    degrees = 12 + int(rng.random() * 17) if chance(rng, 0.75) else one_of(rng, [5, 8, 10, 30, 35, 65, 68, 70, 72, 75, 7, 60])
    said = number(rng, degrees, 0.35)
    if chance(rng, 0.25):
        said = str(degrees) + ".5" if chance(rng, 0.6) else in_words(degrees) + one_of(rng, [" point five", " point five", " and a half"])
        degrees += 0.5
    form = one_of(rng, WARM_FORMS)
    text = expand(rng, form, t=copied(said) + one_of(rng, ["", "", " degrees", " degrees", "°" if said[0].isdigit() else ""]))
    if form in ("$t", "to $t") and chance(rng, 0.25):
        text += one_of(rng, TRAILS[:9])
    reply = one_of(rng, split("The heating is set to {d} degrees. / Done, {d} degrees. / Okay, {d} degrees it is. / I've set it to {d} degrees."))
    made = answered(rng, text, "set_temperature", {"degrees": degrees}, reply.format(d=degrees))
    made.form = "question" if form.startswith("how") else "statement"
    return made


NOT_OFFERED = {
    "set_light": "no lights to switch / no lamps that listen to me / no lights under my control / no way to switch lights / no way to dim a lamp",
    "set_device": "no devices to switch / no plugs under my control / no way to switch devices / no device that listens to me / no switches for that",
    "set_blinds": "no blinds to move / no curtains or shutters under my control / no way to move blinds / no motors at the windows",
    "set_temperature": "no thermostat to set / no heating under my control / no way to change the temperature / no hold over the heating",
    "set_timer": "no timer / no way to time things / no timer to start / no clock that counts down",
    "cancel_timer": "no timers to stop / no timer here / no way to cancel timers / no hold over timers",
    "set_alarm": "no alarm clock / no alarm to set / no way to wake you / no alarm that I could set",
    "cancel_alarm": "no alarms to cancel / no alarm clock here / no way to remove alarms / no hold over alarms",
    "get_weather": "no weather report / no way to look up the weather / no forecast at hand / no window to look out of",
    "get_time": "no clock / no way to tell the time / no clock to look at / no watch",
    "get_date": "no calendar / no way to know the date / no calendar to look at / no date at hand",
    "play_music": "no music to play / no speaker / no way to play music / no music player under my control",
    "control_music": "no music player / no hold over the music / no way to control the music / no player that listens to me",
    "set_volume": "no volume to change / no speaker under my control / no way to change the volume / no volume knob",
    "add_to_list": "no list to write on / no lists here / no way to keep lists / no notepad",
    "remove_from_list": "no list to take it off / no lists here / no way to change lists / no notepad",
    "show_list": "no lists to read / no lists here / no way to look at lists / no notepad to read from",
    "calculate": "no calculator / no way to calculate / no calculator at hand / no tool for arithmetic",
    "convert": "no converter / no way to convert units / no tool for units / no conversion table at hand",
}
NOT_FRAMES = split("""I can't do that here, I have $no. / Sorry, I have $no. / I'm sorry, but I have $no here. / I'm afraid I have $no. /
That's not possible, I have $no. / I can't, I have $no in this house. / Unfortunately I have $no. / I would like to, but I have $no.""")


def offered_not(rng, tool):
    """What is said if the tool that would fit is not offered."""
    return one_of(rng, NOT_FRAMES).replace("$no", one_of(rng, NOT_OFFERED[tool].split(" / ")))


REQUESTS = {"talk": (6, talk), "refuse": (12, refuse), "missing": (5, missing)}
ANSWERS = {"set_timer": timer_answer, "set_alarm": alarm_answer, "add_to_list": list_answer, "set_temperature": warm_answer}
FOLLOWS = {}
