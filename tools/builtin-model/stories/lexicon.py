"""Words of the story grammar: names, creatures, things, places, weather.

Only data. What the words are used for is in `plots_*.py`; how a sentence is put together is in `engine.py`.
"""

GIRLS = """Mia Anna Lily Emma Zoe Ella Clara Nora Lucy Ruby Ivy Rosa Sara Maya Nina Lena Tara Vera Alma Cora Edith Flora Greta Hana Ines Jana Kira Lara
Marta Nadia Olga Paula Rita Sofia Tessa Una Wanda Yara Zara Ada Bella Carla Dora Elsa Faye Gina Heidi Ida Julia Kate Lola Molly Nelly Olive Penny Rose
Sally Tilly Violet Wendy Amy Beth Chloe Daisy Eva Fiona Grace Holly Iris Jane Kitty Leah Mary Naomi Opal Pia Queenie Ruth Sue Thea Uma Vicky Willa Yuki
Amina Leila Fatima Priya Mei Aiko Zuri Ayla Noor Esme Freya Ingrid Astrid Linnea Mina Romy Suki Tova Xenia Alice Agnes Bonnie Cleo Dina Ellen Gwen Hazel
Jill Josie Kim Lotte Maggie Nell Polly Rachel Sandra Tina Ursula Maria Hannah Sophie Emily Laura Jenny Lisa Olivia Ava Luna Stella""".split()

BOYS = """Tom Ben Max Sam Leo Jack Tim Finn Noah Luke Adam Paul Hugo Oscar Felix Theo Otto Emil Ivan Jonas Karl Liam Mark Nico Owen Peter Ravi Simon Toby
Umar Victor Will Yusuf Zack Ali Arlo Bruno Carl Dan Eli Fred George Henry Ian Jake Ken Lars Milo Ned Oliver Pablo Quinn Rob Sven Ted Uri Vito Walter Alex
Andy Bill Charlie David Eddie Frank Gus Harry Isaac Jamie Kofi Louis Matteo Nathan Omar Patrick Rafi Stan Tariq Vince Wes Yan Ziggy Amir Bo Chen Dev Enzo
Farid Goran Hiro Idris Jin Kai Levi Mateo Nils Pedro Rowan Rasmus Samir Tomas Viktor Jasper Albert Arthur Basil Cyril Daniel Edgar Franz Gabriel Howard
Joel Kurt Lenny Martin Neil Philip Ralph Steve Tony Robin Jonah James John Michael Mike Lucas Ethan Jacob""".split()

PET_NAMES = """Pip Tiko Momo Bibi Dot Fip Nibbles Hazel Bramble Pepper Button Patch Tuffy Willow Nutmeg Ginger Rusty Sunny Biscuit Clover Fern Maple Moss Pebble
Puddle Speck Twig Wink Zuzu Bubbles Cricket Daisy Ember Fizz Gigi Hopper Inky Juniper Kiki Lulu Mimi Nana Olly Pogo Quill Rollo Sprout Tango Ula Velvet Waffle
Yoyo Ziggy Acorn Barley Cocoa Dusty Echo Flick Gizmo Humphrey Iggy Jojo Koko Lolo Mumble Noodle Oaky Poppy Roly Sandy Toffee Umber Vix Whisper Berry Rufus
Tilda Oswald Agatha Bernard Cecil Dolores Ernest Florence Gilbert Harold Irma Jerome Leopold Mabel Norbert Ophelia Percy Rosalind Sylvester Theodore""".split()

# Of these, some are never given to a he, some never to a she.
FEMALE = set("""Hazel Willow Ginger Clover Fern Daisy Gigi Juniper Kiki Lulu Mimi Nana Olly Ula Poppy Tilda Agatha Dolores Florence Irma Mabel Ophelia
Rosalind Lolo Bibi Umber Berry Bramble""".split())
MALE = set("""Rollo Humphrey Rufus Oswald Bernard Cecil Ernest Gilbert Harold Jerome Leopold Norbert Percy Sylvester Theodore Tuffy Rusty Ziggy Pip Barley Dusty
Vix""".split())

BOT_NAMES = """Bolt Beep Cog Gear Zip Rivet Sprocket Dot Click Tick Spark Pixel Nano Tin Buzz Whirr Copper Chip Dynamo Widget Bit Blink Clank Ratchet Socket
Pico Tock Turbo Valve Watt Toggle Gizmo Sparky Tinny Bleep Rusty""".split()

# kind: (adjectives, home, food, way of moving)
ANIMALS = {
    "ant": ("little tiny small brave busy young", "anthill", "crumbs", "crawled"),
    "mouse": ("little tiny shy gray small clever young", "hole under the old oak", "cheese", "scurried"),
    "fox": ("young clever red curious small sly", "den", "berries", "trotted"),
    "rabbit": ("little white brown shy young quick fluffy", "burrow", "carrots", "hopped"),
    "bear": ("big brown gentle young hungry sleepy", "cave", "honey", "walked"),
    "hedgehog": ("small prickly shy little sleepy kind", "nest of leaves", "apples", "waddled"),
    "squirrel": ("quick red little busy young cheeky", "hollow tree", "nuts", "ran"),
    "owl": ("wise old gray young small quiet", "hollow tree", "seeds", "flew"),
    "frog": ("green little jolly small young noisy", "pond", "water plants", "hopped"),
    "duck": ("white little brown young cheerful noisy", "nest by the pond", "bread", "waddled"),
    "turtle": ("slow old small patient green little", "house by the river", "leaves", "walked"),
    "snail": ("slow little tiny patient small shy", "garden wall", "lettuce", "crept"),
    "bee": ("busy little small young brave golden", "hive", "honey", "flew"),
    "beetle": ("shiny black little small green proud", "log", "leaves", "crawled"),
    "cat": ("black gray white young lazy curious small", "basket by the stove", "fish", "walked"),
    "dog": ("brown big young happy old faithful friendly", "kennel", "bones", "ran"),
    "sparrow": ("little brown small young cheerful brave", "nest", "seeds", "flew"),
    "crow": ("black clever old young noisy proud", "nest in the tall pine", "corn", "flew"),
    "goat": ("white young stubborn little hungry old", "barn", "grass", "trotted"),
    "lamb": ("white little young fluffy shy soft", "barn", "grass", "trotted"),
    "pony": ("brown small young gentle old spotted", "stable", "hay", "trotted"),
    "donkey": ("gray old stubborn gentle patient young", "stable", "hay", "trotted"),
    "mole": ("small shy blind little black quiet", "tunnel", "roots", "crawled"),
    "badger": ("old gentle grumpy young gray sleepy", "den", "mushrooms", "walked"),
    "otter": ("playful young brown small quick happy", "house by the river", "fish", "swam"),
    "penguin": ("small young brave clumsy little cheerful", "house on the ice", "fish", "waddled"),
    "elephant": ("big gray gentle young kind little", "valley", "fruit", "walked"),
    "monkey": ("cheeky young quick little clever playful", "treehouse", "bananas", "climbed"),
    "lion": ("proud young big brave old sleepy", "cave", "supper", "walked"),
    "crab": ("red small little shy young orange", "hole in the sand", "seaweed", "crawled"),
    "kitten": ("little black white gray curious playful", "basket by the stove", "milk", "ran"),
    "puppy": ("little brown playful small happy clumsy", "basket by the door", "bones", "ran"),
    "chick": ("little yellow tiny fluffy brave", "henhouse", "corn", "ran"),
    "hen": ("brown busy old white proud", "henhouse", "corn", "walked"),
    "pig": ("pink little happy young muddy clever", "barn", "turnips", "trotted"),
    "dragon": ("small green young friendly shy little", "cave", "toast", "flew"),
    "bat": ("little black small young quiet shy", "cave", "fruit", "flew"),
    "spider": ("small black little patient clever quiet", "web in the corner", "soup", "crawled"),
    "butterfly": ("blue yellow pretty small young white", "flower", "nectar", "flew"),
    "caterpillar": ("green little hungry small slow", "leaf", "leaves", "crawled"),
    "ladybug": ("red little tiny small cheerful", "rose bush", "leaves", "flew"),
    "deer": ("young shy brown gentle quick", "clearing", "grass", "ran"),
    "robin": ("red little cheerful small young", "nest", "seeds", "flew"),
    "seal": ("gray young playful small happy", "rock in the bay", "fish", "swam"),
    "wolf": ("gray young lonely big quiet", "den", "supper", "ran"),
    "worm": ("small pink shy little quiet", "tunnel", "leaves", "crawled"),
    "grasshopper": ("green cheerful lazy young little", "meadow", "grass", "hopped"),
    "hamster": ("little round brown sleepy small", "cozy nest", "seeds", "ran"),
}
MACHINES = {
    "robot": "little small old round shiny friendly",
    "tractor": "red old small green muddy",
    "train": "little old blue small red",
    "lighthouse lamp": "old bright small lonely",
    "boat": "little wooden old blue small",
    "clock": "old little wooden brass",
    "toy car": "little red blue small",
    "vacuum robot": "round little gray quiet",
    "drone": "small little white quick",
    "bus": "yellow old little red",
}
ROLES = {  # grown-ups: how they are called, pronoun
    "grandmother": "she", "grandfather": "he", "mother": "she", "father": "he", "aunt": "she", "uncle": "he",
}
WORKERS = """baker:he baker:she farmer:he farmer:she teacher:she teacher:he fisherman:he shopkeeper:she shopkeeper:he carpenter:he carpenter:she gardener:he
gardener:she librarian:she tailor:he painter:she miller:he shepherd:he sailor:he cook:she doctor:she clockmaker:he potter:she postman:he beekeeper:she
blacksmith:he conductor:he weaver:she musician:he musician:she""".split()
CHILD_ADJ = "little young kind curious shy brave clever cheerful quiet careful gentle lively small".split()
ADULT_TITLES = ["Mrs.", "Mr."]
SURNAMES = """Green Brown Hill Baker Woods Stone Field Rivers Bell Fisher Moon Winter Penny Potter Reed Marsh Lane Finch Berry Holt Bird Miller Lake Rose""".split()

COLORS = "red blue green yellow white black purple orange brown gray pink golden silver".split()
# thing: other adjectives (colours are added), verb phrase: what one does with it
THINGS = {
    "kite": ("paper big striped", "fly it over the hill"),
    "ball": ("rubber small bouncy", "throw it high into the air"),
    "scarf": ("warm woolen long soft", "wear it on cold days"),
    "hat": ("straw warm funny tall", "wear it every day"),
    "drum": ("small tin loud", "play it in the evening"),
    "whistle": ("tin little wooden", "blow it on the way home"),
    "book": ("old thick little", "read it under a tree"),
    "lantern": ("little old paper bright", "carry it in the dark"),
    "key": ("old brass little rusty", "open the little box with it"),
    "button": ("shiny round big wooden", "look at it in the sun"),
    "cup": ("tin little pretty", "drink tea from it"),
    "basket": ("little old round", "carry apples in it"),
    "umbrella": ("big old small", "walk in the rain with it"),
    "pencil": ("short long new", "draw pictures with it"),
    "flute": ("wooden silver small", "play songs on it"),
    "bell": ("little brass tiny", "ring it in the morning"),
    "spoon": ("wooden silver big", "stir the soup with it"),
    "blanket": ("warm soft old woolen", "sleep under it at night"),
    "coin": ("old gold shiny", "keep it in a safe place"),
    "stone": ("smooth round shiny", "hold it in the sun"),
    "ring": ("little gold thin", "wear it on feast days"),
    "boot": ("muddy leather old", "walk through puddles in it"),
    "mitten": ("woolen warm little", "wear it in the snow"),
    "map": ("old big torn", "plan long trips with it"),
    "brush": ("small old soft", "paint with it"),
    "teddy bear": ("old soft little", "hug it at bedtime"),
    "doll": ("little old rag", "take it everywhere"),
    "music box": ("tiny old wooden", "listen to it before bed"),
    "toy boat": ("wooden little tin", "sail it on the pond"),
    "feather": ("long soft white", "tickle friends with it"),
    "shell": ("pretty little shiny", "listen to the sea in it"),
    "marble": ("glass little shiny", "roll it along the floor"),
    "backpack": ("old small heavy", "carry lunch in it"),
    "ribbon": ("silk long pretty", "wear it on Sundays"),
}
FRUIT = ["apple", "pear", "plum", "cherry", "strawberry", "blackberry", "peach", "orange"]
FOODS = """warm bread|apple pie|vegetable soup|pancakes with honey|hot chocolate|berry jam|nut cake|cheese and bread|tomato soup|carrot cake|roasted chestnuts
|fresh milk and cookies|potato soup|blueberry muffins|warm tea with honey|noodles|rice with vegetables|baked apples""".replace("\n", "").split("|")

PLACES = """a small village|a quiet valley|a big forest|a little town by the sea|a green meadow|a house at the edge of the forest|a busy town|a farm on a hill
|a village by the river|a little house near the lake|a sunny garden|an old mill by the stream|a town with narrow streets|a cottage at the foot of a mountain
|a village in the mountains|a warm country in the south|a house with a blue door|a place where the winters were long
|a quiet street at the edge of town""".replace("\n", "").split("|")
WILD = """a big forest|a green meadow|the deep woods|a quiet valley|a sunny garden|an old garden behind a farmhouse|a field of tall grass|a forest of tall pines
|the reeds by the river|a hollow tree|a corner of the park|a garden on a hill|the shade of an old oak|a clearing in the forest
|a garden full of roses|a meadow near the stream""".replace("\n", "").split("|")
SPOTS = """under the bed|behind the door|in the garden|under the old bench|near the well|behind the barn|in the tall grass|by the river|under the stairs
|between the roots of a tree|behind the shed|on the windowsill|beside the path|under a pile of leaves|in the kitchen|near the fence|behind the stove
|by the pond|in the attic|under the table""".replace("\n", "").split("|")
SKY = """the sun was shining|the sky was blue and clear|a soft wind was blowing|the birds were singing|the air was cool and fresh|white clouds moved slowly across the sky
|the grass was still wet with dew|the leaves were turning yellow|the first flowers were opening|it was warm and quiet|the wind smelled of rain
|the morning was bright|a thin mist lay over the fields""".replace("\n", "").split("|")
HABITS = """loved to [count the stars|look at the clouds|climb trees|sing|paint pictures|collect stones|tell stories|listen to the rain|dance|bake bread|ask questions|dig holes]
|liked to [walk by the river|watch the birds|draw maps|read books|build small houses out of sticks|wake up early|whistle old songs|play by the pond]
|was always [asking questions|in a hurry|hungry|looking for something new|busy|ready to help|singing|a little late|full of ideas]
|never [sat still for long|went anywhere without a snack|gave up easily|forgot a friend|liked to be alone]
|wanted to [see the world|learn everything|be brave|find a good friend|be useful|see the sea one day|become a great builder]
|was [afraid of the dark|very good at finding things|a bit shy|not very tall, but very brave|kind to everyone|known for a loud laugh|the smallest of all|never in a bad mood]
|dreamed of [flying|a long journey|the sea|a garden full of flowers|a friend to play with|big adventures]
|had [a big heart|many friends|a very loud voice|a secret wish|a special talent|a small garden|three brothers|no fear at all]""".replace("\n", "")
