"""Music and volume: what to play and where, pausing and skipping, louder and quieter."""

from grammar import Request, chance, copied, expand, number, one_of
from grammar import invented as any_invented
from rooms import room, room_phrase, room_place

GENRES = """jazz|rock|pop|classical|blues|country|folk|hip hop|hip-hop|rap|reggae|ska|punk|metal|heavy metal|death metal|soul|funk|disco|techno
|house|deep house|drum and bass|dubstep|trance|ambient|lo-fi|lofi|lo-fi hip hop|indie|indie rock|indie pop|alternative|grunge|gospel|opera
|baroque|bluegrass|swing|big band|bebop|smooth jazz|cool jazz|free jazz|latin|latin jazz|salsa|samba|bossa nova|tango|flamenco|fado|cumbia
|merengue|bachata|reggaeton|k-pop|j-pop|afrobeat|afrobeats|highlife|celtic|irish folk|polka|klezmer|bhangra|bollywood|world|new age|meditation
|piano|guitar|acoustic guitar|violin|cello|harp|flute|saxophone|harpsichord|organ|string quartet|chamber|orchestral|choral|film|movie
|video game|game|christmas|holiday|halloween|easter|party|dance|electronic|electro|synthwave|synth-pop|new wave|post-punk|shoegaze|dream pop
|psychedelic rock|prog rock|progressive rock|soft rock|hard rock|classic rock|punk rock|surf rock|rockabilly|rock and roll|r&b|rnb|neo soul
|motown|trip hop|trap|drill|grime|garage|uk garage|hardstyle|eurodance|industrial|gothic|black metal|thrash metal|doom metal|nu metal|emo
|hardcore|math rock|post-rock|krautrock|americana|alt-country|honky tonk|zydeco|cajun|dixieland|ragtime|boogie-woogie|barbershop|gregorian
|medieval|renaissance|romantic|minimal techno|acid jazz|nu jazz|chillout|chill|lounge|downtempo|chillwave|vaporwave|yacht rock|city pop
|schlager|chanson|french pop|italian pop|spanish guitar|turkish pop|arabic|persian|indian classical|mariachi|ranchera|norteño|tropical house
|calypso|soca|dancehall|dub|roots reggae|rocksteady|mento|fusion|jazz fusion|jazz piano|piano jazz|solo piano|steel drum|bagpipe|accordion
|banjo|ukulele|hawaiian|sea shanty|marching band|brass band|nordic folk|russian folk|greek|balkan|gypsy jazz|african|cuban|brazilian|japanese
|korean|chinese|mongolian throat singing|tibetan|spa|yoga|workout|study|sleep|children's|kids'|baby|dinner|cocktail|background|elevator|80s
|90s|70s|60s|50s|2000s|eighties|nineties|seventies|sixties|80s rock|90s pop|70s disco|60s soul|90s hip hop
|eighties pop|nineties dance""".replace("\n", "").split("|")
MOODS = """relaxing|calm|calming|happy|cheerful|upbeat|sad|melancholic|romantic|quiet|soft|gentle|slow|fast|loud|energetic|dreamy|mellow|peaceful
|soothing|uplifting|funky|groovy|chilled|cosy|cozy|dark|epic|festive|fun|lively|light|moody|motivating|mysterious|nostalgic|old|old-fashioned
|spooky|summery|sunny|wintery|smooth|jazzy|folky|danceable|bouncy|dramatic|heroic|soulful|modern|traditional|tropical|weird|wild|instrumental
|acoustic|inspiring|meditative|hypnotic|heavy|noisy|mindless|sleepy|playful|sentimental|tender|powerful|rhythmic|exotic|medieval|classical
|electronic|rebellious|warm""".replace("\n", "").split("|")
PHRASES = """love songs|christmas carols|christmas songs|sad songs|happy songs|party hits|party songs|80s hits|90s hits|summer hits
|nursery rhymes|lullabies|children's songs|kids' songs|bedtime songs|sea shanties|drinking songs|campfire songs|road trip songs|wedding songs
|power ballads|rock ballads|piano ballads|slow jams|show tunes|broadway hits|movie soundtracks|film scores|video game soundtracks|disney songs
|one hit wonders|golden oldies|oldies|classic rock hits|country classics|soul classics|motown classics|disco classics|evergreens|top 40
|today's hits|new releases|dance hits|club bangers|house anthems|piano sonatas|violin concertos|cello suites|string quartets|organ fugues
|waltzes|nocturnes|opera arias|symphonies|tangos|polkas|marches|hymns|rain sounds|ocean waves|ocean sounds|forest sounds|bird song|birdsong
|whale sounds|white noise|pink noise|brown noise|nature sounds|thunderstorm sounds|fireplace sounds|lo-fi beats|chill beats|study beats
|jungle sounds|wind chimes|singing bowls|guided meditation|bedtime stories|fairy tales|drum solos|guitar solos|irish jigs|folk songs
|protest songs|cowboy songs|pirate songs|football anthems|national anthems|campfire stories|comedy shows|cover versions|remixes
|live recordings|easy listening|birthday songs|halloween songs|beach vibes|summer vibes|coffee house jazz|dinner jazz
|deep focus|sleep sounds""".replace("\n", "").split("|")
ARTISTS = """Miles Davis|John Coltrane|Ella Fitzgerald|Nina Simone|Billie Holiday|Louis Armstrong|Frank Sinatra|Dean Martin|Elvis Presley
|Johnny Cash|Dolly Parton|Willie Nelson|Bob Dylan|Joan Baez|Joni Mitchell|Neil Young|Leonard Cohen|Paul Simon|Simon and Garfunkel|Queen
|David Bowie|Elton John|Pink Floyd|Led Zeppelin|Deep Purple|Black Sabbath|Metallica|Iron Maiden|AC/DC|Nirvana|Pearl Jam|Radiohead|Coldplay
|Oasis|Blur|Muse|U2|Depeche Mode|New Order|Joy Division|Kraftwerk|Daft Punk|Air|Massive Attack|Portishead|Bjork|Sigur Ros|Abba|Roxette
|Ace of Base|Madonna|Michael Jackson|Prince|Whitney Houston|Tina Turner|Aretha Franklin|Stevie Wonder|Marvin Gaye|Otis Redding|James Brown
|Ray Charles|Etta James|Bob Marley|Peter Tosh|Toots and the Maytals|Fela Kuti|Miriam Makeba|Youssou N'Dour|Buena Vista Social Club|Celia Cruz
|Shakira|Rosalia|Bad Bunny|Manu Chao|Edith Piaf|Jacques Brel|Charles Aznavour|Stromae|Beyonce|Rihanna|Adele|Taylor Swift|Ed Sheeran
|Billie Eilish|Dua Lipa|Lady Gaga|Harry Styles|Lizzo|Lorde|Lana Del Rey|Ariana Grande|Justin Bieber|Drake|Kendrick Lamar|Eminem|Jay-Z
|Kanye West|Snoop Dogg|Outkast|Missy Elliott|Lauryn Hill|Public Enemy|Bach|Mozart|Beethoven|Vivaldi|Chopin|Schubert|Brahms|Debussy|Satie|Ravel
|Tchaikovsky|Dvorak|Grieg|Sibelius|Handel|Haydn|Verdi|Puccini|Wagner|Mahler|Philip Glass|Steve Reich|Arvo Part|Ludovico Einaudi|Hans Zimmer
|John Williams|Ennio Morricone|Max Richter|Norah Jones|Diana Krall|Amy Winehouse|Herbie Hancock|Keith Jarrett|Chet Baker|Dave Brubeck
|Duke Ellington|Glenn Miller|Django Reinhardt|Stan Getz|Tom Waits|Nick Cave|PJ Harvey|Patti Smith|Bruce Springsteen|Tom Petty|Fleetwood Mac
|Genesis|Phil Collins|Sting|Dire Straits|Supertramp|Toto|Journey|Bon Jovi|Aerosmith|Guns N' Roses|Green Day|Blink-182|Foo Fighters
|Red Hot Chili Peppers|Arctic Monkeys|Franz Ferdinand|Tame Impala|Bon Iver|Fleet Foxes|Sufjan Stevens|Arcade Fire|Vampire Weekend|Beach House
|Mumford and Sons|Enya|Moby|Fatboy Slim|Aphex Twin|Boards of Canada|Four Tet|Bonobo|BTS|Blackpink|Yo-Yo Ma|Lang Lang|Pavarotti|Maria Callas
|Ravi Shankar|Cesaria Evora""".replace("\n", "").split("|")
ARTISTS_THE = """Beatles|Rolling Stones|Who|Kinks|Doors|Beach Boys|Eagles|Clash|Cure|Smiths|Police|Cranberries|Killers|Strokes|White Stripes
|Black Keys|Supremes|Temptations|Four Tops|Pogues|Dubliners|Chieftains|Bee Gees|Carpenters|Ramones|Pixies|Prodigy|Chemical Brothers|Weeknd
|National|Lumineers|Monkees|Byrds|Velvet Underground|Stooges|Specials|Wailers|Jackson 5|Spice Girls|Backstreet Boys|Platters|Drifters
|Berlin Philharmonic""".replace("\n", "").split("|")
TITLES = """Yellow River|Imagine|Hey Jude|Let It Be|Yesterday|Bohemian Rhapsody|Dancing Queen|Billie Jean|Thriller|Purple Rain|Like a Prayer
|Hotel California|Stairway to Heaven|Smoke on the Water|Paint It Black|Brown Sugar|Angie|Wonderwall|Creep|Karma Police|Smells Like Teen Spirit
|Nothing Else Matters|Enter Sandman|Back in Black|Highway to Hell|Born to Run|Summer of '69|Sweet Child o' Mine|Africa|Take On Me|Sweet Dreams
|Blue Monday|Heroes|Space Oddity|Life on Mars|Rocket Man|Your Song|Tiny Dancer|Hallelujah|Suzanne|Blowin' in the Wind|Like a Rolling Stone
|Heart of Gold|Ring of Fire|Jolene|Crazy|Fever|Summertime|Feeling Good|New York, New York|Fly Me to the Moon|What a Wonderful World|Take Five
|So What|Blue in Green|Autumn Leaves|Moon River|Clair de Lune|Fur Elise|Moonlight Sonata|Ode to Joy|Bolero|Swan Lake|Nutcracker Suite
|Four Seasons|Air on the G String|Canon in D|Happy Birthday|Jingle Bells|Silent Night|Last Christmas|White Christmas|Let It Snow|Let It Go
|Hakuna Matata|Under the Sea|Baby Shark|Itsy Bitsy Spider|Twinkle Twinkle Little Star|Old MacDonald|Frère Jacques|Baa Baa Black Sheep
|No Woman No Cry|One Love|Three Little Birds|Respect|Superstition|I Feel Good|Stand by Me|Lean on Me|Stayin' Alive|I Will Survive|Le Freak
|Get Lucky|Around the World|Blinding Lights|Shape of You|Rolling in the Deep|Someone Like You|Hello|Halo|Single Ladies|Umbrella|Bad Guy
|Shake It Off|Anti-Hero|As It Was|Levitating|Royals|Viva la Vida|Clocks|Fix You|With or Without You|Beautiful Day|Losing My Religion|Zombie
|Dreams|Landslide|Go Your Own Way|Africa by Night|Mad World|Running Up That Hill|Wuthering Heights|Teardrop|Unfinished Sympathy|Glory Box
|Seven Nation Army|Mr. Brightside|Take Me Out|Do I Wanna Know|Old Town Road|Despacito|La Vie en Rose|Ne me quitte pas|La Bamba|Bella Ciao
|Macarena|Gangnam Style|99 Luftballons|Country Roads|Islands in the Stream|Eye of the Tiger|We Are the Champions|Don't Stop Believin'
|Livin' on a Prayer|Sound of Silence|Mrs. Robinson|Bridge over Troubled Water|Piano Man|American Pie|Brown Eyed Girl|Sweet Caroline
|Here Comes the Sun|Eleanor Rigby|Yellow Submarine|Come Together|Good Vibrations|Layla|Tears in Heaven|Wish You Were Here|Comfortably Numb
|Time After Time|True Colors""".replace("\n", "").split("|")
ADJECTIVES = """Yellow|Blue|Golden|Silver|Silent|Broken|Wild|Lonely|Electric|Crystal|Burning|Frozen|Paper|Velvet|Midnight|Summer|Winter|Autumn
|Northern|Southern|Little|Big|Old|New|Lost|Hidden|Secret|Sweet|Bitter|Crooked|Hollow|Restless|Endless|Empty|Distant|Gentle|Glass|Iron|Copper
|Wooden|Plastic|Neon|Purple|Crimson|Pale|Rusty|Dusty|Sleepy|Hungry|Angry|Lazy|Crazy|Lucky|Holy|Heavy|Hot|Cold|Last|First|Second|Seven|Three
|Twenty|Thousand|Rainy|Foggy|Stormy|Salty|Tall|Slow|Quick|Brave|Tiny|Giant|Royal|Cosmic|Lunar|Solar|Urban|Tropical|Arctic|Dancing|Falling
|Flying|Singing|Running|Sleeping|Whispering|Wandering|Melting|Shining""".replace("\n", "").split("|")
NOUNS = """River|Moon|Sun|Star|Sky|Rain|Thunder|Ocean|Island|Mountain|Valley|Desert|Forest|Road|Highway|Bridge|Train|Ship|Boat|Wheel|Engine
|Machine|Robot|Radio|Telephone|Letter|Paper|Mirror|Window|Shadow|Ghost|Angel|Devil|King|Queen|Prince|Soldier|Sailor|Stranger|Lover|Dreamer
|Hunter|Wolf|Fox|Bear|Tiger|Lion|Horse|Pony|Rabbit|Owl|Raven|Sparrow|Swan|Spider|Bee|Butterfly|Whale|Fish|Rose|Lily|Tulip|Cactus|Apple|Lemon
|Cherry|Honey|Sugar|Coffee|Whiskey|Wine|Fire|Flame|Smoke|Ashes|Stone|Diamond|Silver|Gold|Feather|Heart|Soul|Hands|Eyes|Bones|Dream|Memory
|Promise|Secret|Melody|Rhythm|Echo|Silence|Morning|Evening|Midnight|Monday|Sunday|Friday|December|July|Carnival|Circus|Parade|Harbor
|Lighthouse|Station|Avenue|Boulevard|Motel|Palace|Castle|Planet|Galaxy|Satellite""".replace("\n", "").split("|")
FIRST_NAMES = """Anna|Maria|Lucy|Clara|Rosa|Nina|Ruth|Ivy|Stella|Edith|Greta|Tessa|Marlene|Yuki|Amira|Olga|Jack|Tom|Billy|Johnny|Walter|Otis|Leon
|Felix|Hugo|Oscar|Milo|Ravi|Omar|Kenji|Pablo|Diego|Sven|Lars|Igor|Carl|Ned|Joe|Frank|Bruno""".replace("\n", "").split("|")
LAST_NAMES = """Lee|Brown|Marsh|Rivers|Stone|Wilder|Hayes|Quinn|Carter|Bloom|Fields|Grant|Moreau|Rossi|Novak|Lindqvist|Tanaka|Okafor|Silva|Garcia
|Ortega|Weber|Keller|Dubois|Larsen|Kowalski|Petrov|Singh|Haddad|Young|West|Winters|King|Fox|Moss|Banks
|Doyle|Murphy|Baker|Cole""".replace("\n", "").split("|")
PLACES = """Berlin|Paris|Memphis|Havana|Lisbon|Tokyo|Texas|Nashville|Rome|Oslo|Rio|Dublin|Vienna|Cairo|Chicago|Mexico|Georgia|Brooklyn|Naples
|Santa Fe""".replace("\n", "").split("|")
TITLE_FORMS = """$adj $noun|$adj $noun|$adj $noun|$noun and $other|$noun of $place|Letters from $place|Goodbye $place|Back to $place
|Road to $place|Night in $place|$name|Dear $name|Sing for $name|Waiting for $name|Where Is $name|Dancing with $name|Ballad of $name
|$noun in the $other|$noun on the Run|Under the $adj $noun|Over the $noun|Beyond the $noun|Into the $noun|Through the $noun|I Am the $noun
|You Are My $noun|Give Me Your $noun|Don't Take My $noun|No More $noun|Too Much $noun|Like a $noun|When the $noun Falls|Follow the $noun
|Chasing the $noun|Walking on $noun|One More $noun|Never Say $word|$word|$word $noun|$adj $noun Blues|$noun Song|$noun Waltz|$place Nights
|Song for the $noun|Ten $noun Road|Burn the $noun|Kiss the $noun|$adj $adj_two $noun|Half a $noun|How to Catch a $noun|We Were $adj
|Tomorrow Is $adj|All the $adj Days|Nobody Knows the $noun|Call Me $name|Just Another $noun|$noun Number Nine""".replace("\n", "").split("|")
BAND_FORMS = """$adj $nouns|$adj $nouns|$adj $nouns|$first $last|$first $last|$first $last|$first and the $nouns|$noun Brothers|$first $last Trio
|$last Quartet|$word|$word $word_two|DJ $word|MC $noun|$noun Orchestra|$adj $noun Band|$first $last Band|$last Sisters|$noun and $other
|Little $first|Lil $noun|Big $first $last|$place Symphony Orchestra|$place Boys|$noun Club|$nouns of $place|Saint $first|Doctor $noun
|$noun $noun_two|$word and the $nouns|Twenty $nouns""".replace("\n", "").split("|")
STATIONS = """BBC Radio 1|BBC Radio 2|BBC Radio 4|BBC Radio 6 Music|Classic FM|Jazz FM|Capital FM|Radio Paradise|Radio Swiss Jazz|Radio Nova|NPR
|KEXP|WNYC|FIP|Antenne Bayern|Radio Eins|Deutschlandfunk|France Inter|Radio Italia|Triple J|Kiss FM|Heart FM|Magic FM|Smooth Radio
|Absolute Radio|Rock Antenne|Radio Monte Carlo|Virgin Radio|LBC|Radio Caroline|Energy FM|Radio Bob|SomaFM|NTS|Hot 97|Z100|KCRW|RTE Radio 1
|Radio New Zealand|CBC Music""".replace("\n", "").split("|")
SHOWS = """Serial|This American Life|Radiolab|Science Friday|Hardcore History|Stuff You Should Know|Freakonomics|Planet Money
|No Such Thing as a Fish|Desert Island Discs|In Our Time|Song Exploder|Invisibilia|Reply All|Criminal|Lore|Welcome to Night Vale|Hidden Brain
|Short Wave|Up First|Wind of Change|Cautionary Tales|Revolutions|Fall of Civilizations|Ear Hustle|Heavyweight|Off Menu|Sleep with Me
|Nothing Much Happens""".replace("\n", "").split("|")
BOOKS = """Moby Dick|Harry Potter|Winnie the Pooh|Pride and Prejudice|Treasure Island|Peter Pan|Alice in Wonderland|Jungle Book|Dracula
|Frankenstein|Sherlock Holmes|Little Women|Robinson Crusoe|War and Peace|Dune|Matilda|Gruffalo|Heidi|Pinocchio
|Great Gatsby|Emma|Jane Eyre""".replace("\n", "").split("|")
PLAYLISTS = """running|workout|gym|party|cooking|dinner|morning|sleep|study|focus|driving|road trip|summer|winter|chill|yoga|cleaning|birthday
|wedding|favorites|favourites|monday|friday night|bedtime|bath|barbecue|garden|work|reading|rainy day|sunday|breakfast|discover weekly|kids
|family|date night|dance|throwback|top songs|holiday|beach|coffee|spinning|pilates|meditation|gaming""".replace("\n", "").split("|")
SUBJECTS = """news|science|history|comedy|sports|football|politics|true crime|cooking|gardening|tech|business|film|language|french|philosophy
|astronomy|parenting|health|money|travel|nature|music|bible|chess|cycling|literature|knitting|climate""".replace("\n", "").split("|")


def invented(rng, capital=False):
    """An invented word that is no article."""
    word = any_invented(rng, capital)
    return word if word.lower() != "the" else invented(rng, capital)


def cased(rng, text):
    """A name with its capitals, or as people type it."""
    return text if chance(rng, 0.45) else text.lower()


def plural(noun):
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    if noun.endswith(("sh", "ss", "x", "ch", "us")):
        return noun + "es"
    return noun if noun.endswith("s") else noun + "s"


def parts(rng):
    noun = one_of(rng, NOUNS)
    return dict(adj=one_of(rng, ADJECTIVES), adj_two=one_of(rng, ADJECTIVES), noun=noun, nouns=plural(noun), noun_two=one_of(rng, NOUNS),
                other=one_of(rng, NOUNS), place=one_of(rng, PLACES), name=one_of(rng, FIRST_NAMES), first=one_of(rng, FIRST_NAMES),
                last=one_of(rng, LAST_NAMES), word=invented(rng, True), word_two=invented(rng, True))  # fmt: skip


def title(rng):
    return one_of(rng, TITLES) if chance(rng, 0.4) else expand(rng, one_of(rng, TITLE_FORMS), **parts(rng))


def artist(rng):
    """(article, name): the article is not part of the query."""
    p = rng.random()
    if p < 0.4:
        return "", one_of(rng, ARTISTS)
    if p < 0.55:
        return one_of(rng, ["the ", "the ", "the ", ""]), one_of(rng, ARTISTS_THE)
    form = one_of(rng, BAND_FORMS)
    return "the " if "$nouns" in form[:11] and chance(rng, 0.6) else "", expand(rng, form, **parts(rng))


def by_genre(rng):
    genre = one_of(rng, GENRES)
    if chance(rng, 0.07):
        genre = expand(rng, "$word [rock|pop|jazz|folk|metal|core|wave|house|step]", word=invented(rng))
    elif chance(rng, 0.1):
        genre = one_of(rng, MOODS) + " " + genre
    elif chance(rng, 0.05):
        genre = genre[0].upper() + genre[1:]
    after = one_of(rng, ["", "", " music"])
    if genre[-1] in "0" or genre in BARE_NEVER:
        after = " music"
    return one_of(rng, ["some ", "some ", "", "", "a bit of ", "a little "]) + copied(genre) + after, genre


BARE_NEVER = set("""world|meditation|film|movie|video game|game|christmas|holiday|halloween|easter|party|spa|yoga|workout|study|sleep|children's
|kids'|baby|dinner|cocktail|background|elevator|medieval|renaissance|romantic|chamber|latin|arabic|greek|african|cuban|brazilian|japanese
|korean|chinese|tibetan|dance|persian|hawaiian|balkan|marching band|sea shanty|minimal|gothic|industrial|new age|gregorian|celtic
|tropical house|nineties|eighties|seventies|sixties|orchestral|choral|alternative|acoustic guitar
|electronic|persian|organ""".replace("\n", "").split("|"))


def by_mood(rng):
    mood = one_of(rng, MOODS)
    if chance(rng, 0.12):
        mood = one_of(rng, MOODS) + one_of(rng, [" and ", ", ", " but "]) + mood
    return expand(rng, "[something|something|some|some|] $mood", mood=copied(mood)), mood


def by_mood_or_phrase(rng):
    if chance(rng, 0.4):
        what, mood = by_mood(rng)
        return what if what.startswith("something") else what + " music", mood
    phrase = one_of(rng, PHRASES)
    return one_of(rng, ["some ", "", ""]) + copied(phrase), phrase


def by_artist(rng):
    article, name = artist(rng)
    name = cased(rng, name)
    lead = one_of(rng, ["", "", "", "some ", "something by ", "something from ", "some music by ", "music by ", "a song by ", "a track by ",
        "anything by ", "songs by ",
                        "some songs by ", "the band ", "the artist "])  # fmt: skip
    if lead in ("some ", "the band ", "the artist "):
        article = ""
    return lead + article + copied(name), name


def by_title(rng):
    name = title(rng)
    p = rng.random()
    if p < 0.5:
        by = "".join(artist(rng))
        name += " by " + by
        name = cased(rng, name)
        lead = one_of(rng, ["", "", "", "", "the song ", "the track ", "the album "])
        return lead + copied(name), name
    name = cased(rng, name)
    lead = one_of(rng, ["", "", "", "the song ", "the track ", "that song ", "the album ", "the song called ", "the record ", "the single ", "the"
        " tune "])
    return lead + copied(name), name


def by_station(rng):
    p = rng.random()
    if p < 0.35:
        name = one_of(rng, STATIONS)
    elif p < 0.5:
        name = "Radio " + one_of(rng, [one_of(rng, NOUNS), invented(rng, True), one_of(rng, PLACES), str(1 + int(rng.random() * 110))])
    elif p < 0.7:
        name = one_of(rng, [one_of(rng, NOUNS), invented(rng, True), one_of(rng, PLACES), one_of(rng, ADJECTIVES)]) + one_of(rng, [" FM", ""
            " Radio", " FM", " 101"])
    elif p < 0.8:
        name = f"{88 + int(rng.random() * 20)}.{int(rng.random() * 10)}" + one_of(rng, [" FM", "", " Radio"])
    elif p < 0.9:
        name = (
            one_of(rng, ["jazz", "classical", "oldies", "rock", "country", "blues", "indie", "sports", "news", "local", "reggae", "pop"]) + ""
            " radio"
        )
        return one_of(rng, ["", "", "some ", "the "]) + copied(name), name
    else:
        return "the " + copied("radio"), "radio"
    name = cased(rng, name)
    return one_of(rng, ["", "", "", "the station ", "the radio station "]) + copied(name), name


def by_show(rng):
    p = rng.random()
    if p < 0.3:
        name = cased(rng, one_of(rng, SHOWS) if chance(rng, 0.6) else expand(rng, one_of(rng, TITLE_FORMS), **parts(rng)))
        return one_of(rng, ["the podcast ", "the podcast ", "the show ", "that podcast "]) + copied(name), name
    if p < 0.5:
        name = cased(rng, one_of(rng, SHOWS) if chance(rng, 0.5) else expand(rng, "$adj $noun", **parts(rng))) + " podcast"
        return one_of(rng, ["the ", "the ", "my "]) + copied(name), name
    if p < 0.65:
        name = one_of(rng, SUBJECTS) + " podcast"
        return one_of(rng, ["a ", "the ", "my "]) + copied(name), name
    if p < 0.8:
        name = cased(rng, one_of(rng, BOOKS) if chance(rng, 0.6) else title(rng))
        return one_of(rng, ["the audiobook ", "the audio book ", "the audiobook of "]) + copied(name), name
    name = one_of(rng, ["latest", "newest", "new", "first", "last", "second"]) + " episode of " + cased(rng, one_of(rng, SHOWS))
    return "the " + copied(name), name


def by_playlist(rng):
    name = one_of(rng, PLAYLISTS)
    if chance(rng, 0.25):
        name = cased(rng, expand(rng, "[$adj $noun|$name's $noun|$word|$adj Vibes|$place Mix]", **parts(rng)))
        if chance(rng, 0.5):
            return one_of(rng, ["the playlist ", "my playlist ", "the playlist called "]) + copied(name), name
    name += " " + one_of(rng, ["playlist", "playlist", "playlist", "mix"])
    if chance(rng, 0.1):
        name = one_of(rng, FIRST_NAMES) + "'s " + name
        return copied(name), name
    return one_of(rng, ["my ", "the ", "my ", "our "]) + copied(name), name


WHAT = [by_genre] * 5 + [by_mood_or_phrase] * 3 + [by_artist] * 5 + [by_title] * 6 + [by_station] * 2 + [by_show] * 2 + [by_playlist] * 2

PLAY_COMMANDS = """play $what$where
play $what$where
play $what$where
play [me|us] $what$where
play $what [now|for me|for us|next]$where
put on $what$where
put $what on$where
[stick|throw|pop|get] $what on$where
[stick|throw|pop] on $what$where
start [playing|] $what$where
start $what [playing|up]$where
go ahead and play $what$where
give [me|us] $what$where
let [me|us] [hear|listen to] $what$where
let $what play$where
let's [hear|have|listen to|play|put on|try] $what$where
find [me|us|] $what and play it$where
look for $what and play it$where
find $what [and put it on|and start it]$where
[get|bring|have] $what [going|playing]$where
get the speaker to play $what$where
set the mood with $what$where
cue up $what$where
[stream|blast|spin] $what$where
[shuffle|loop] $what$where
fill $theroom with $what
serenade [me|us] with $what
treat [me|us] to $what$where
surprise [me|us] with $what$where
entertain us with $what$where
switch [the music|] to $what$where
change [the music|the song|what's playing|it] to $what$where
switch over to $what$where
tune in to $what$where
make the speakers play $what$where
see if you can find $what and play it$where
search for $what and play it$where
send $what to $theroom [speaker|speakers]
play $what on $theroom [speaker|speakers|]
put $what on $theroom [speaker|speakers]
use $theroom [speaker|speakers] to play $what
have $theroom [speaker|speakers] play $what
let $theroom speaker play $what
play $what$where, [i love it|it's my favorite|i need it|for the mood]
play $what$where, [the kids want it|we have guests|it's party time|i feel like dancing|it fits the weather]
play $what$where [while i cook|while we eat|while i'm cleaning|while i work]
play $what$where [until i fall asleep|so the baby sleeps|for the party|for our guests|for the kids]
put on $what$where [while i cook|while we eat|while i clean|while i work|for the guests|for the kids|for dinner]
play [for me|for us] $what$where
keep [me|us] company with $what
kick things off with $what$where
start [the day|the evening|the party|my day|the morning] with $what$where
crank out $what$where
hit me with $what
drop $what$where
dig out $what and play it$where""".split("\n")
PLAY_STATEMENTS = """$what$where
$what$where
$what$where, now
$what$where [for me|then]
$what [on|playing]$where
music: $what$where
next up$where: $what
$room_, $what
$theroom: $what
$where_first, play $what
$where_first [some music, namely|i want|we want|let's have] $what
$where_first we'd like [to hear|] $what
i'd [like|love] [to hear|to listen to|] $what$where
i would like [to hear|to listen to|] $what$where
i [want|wanna|need] to [hear|listen to] $what$where
i [want|need] $what$where
i[ want|'d like| would like] you to play $what$where
i feel like [listening to|hearing|] $what$where
i'm in the mood for $what
we're in the mood for $what$where
i could [really|] [use|do with|go for] $what [right now|now|]
i fancy [listening to|] $what$where
i'm [dying|itching|keen] to hear $what
we'd [like|love] [to hear|] $what$where
we [want|need] $what$where
we want to [dance to|listen to|hear] $what$where
the kids want [to hear|to listen to|] $what$where
[my wife|my husband|my son|my daughter|grandma|the baby|everybody|my friend] [wants|would like] to hear $what$where
[my mom|my dad|grandpa|the little one|she|he] wants $what$where
time for $what$where
it's time for $what$where
how i'd love to hear $what
ok so [i'm cooking|i'm doing the dishes|we're having dinner|i'm working out] now, [play|put on|give me] $what$where
ok so [i'm home|guests are here|we're painting|i'm about to work] now, [play|put on|give me] $what$where
[i'm cooking|we're eating|i'm cleaning|i'm taking a bath], [play|put on|start] $what$where
[i'm doing yoga|i'm trying to sleep|i can't sleep|i'm bored|i'm so tired], [play|put on|start] $what$where
it's [so quiet|boring|too quiet|dull] [here|in here], [play|put on] $what
what i want [to hear|] [now|] is $what
what we need [now|] is $what$where
nothing would be nicer now than $what
nothing but $what [tonight|today|now]$where
tonight we [want|need|listen to|dance to] $what$where
today i [want to hear|feel like|need] $what$where
i haven't heard $what in [ages|years|a long time], play it$where
i love $what, [play it|put it on|let me hear it]$where
you know $what? play it$where
it would be [nice|great|lovely] to [hear|listen to|have] $what$where
it'd be [nice|great|lovely] if you played $what$where
i was hoping for $what$where
i was thinking of $what$where
i think [we need|i'd like|i want|it's time for] $what$where
some atmosphere: $what$where
dj, [play|drop|give me|spin] $what$where
[right|ok|okay|alright|well|so|hm|um], [play|put on|let's have|let's hear|i want|how about] $what$where
now playing$where: $what
music on$where, $what
[no more silence|enough silence|dinner's ready|party time|dance time|bath time|bedtime|work time|story time], $what [on|]$where
[i'd rather hear|i'd prefer|let's try|let's go with|let's do|let's go for] $what$where
[i'm|we're] ready for $what$where
give it up for $what
$what would be [nice|great|lovely|perfect|good] [now|right now|]
$what is what i [need|want] [now|right now|]
$what, that's what i want to hear
$what [i'd like to hear|is what i'd like to hear|i want to hear]
my choice: $what$where
request: $what$where
$theroom could use $what
$theroom needs $what
i want $theroom speaker to play $what
i'd like $theroom speakers to play $what
i want $what coming from $theroom speakers""".split("\n")
PLAY_QUESTIONS = """can [we|i] [have|hear|listen to|get] $what$where
could [we|i] [have|hear|listen to|get] $what$where
may [we|i] [have|hear|listen to] $what$where
would you [play|put on|start] $what$where
would you mind [playing|putting on|starting] $what$where
do you mind [playing|putting on] $what$where
how about $what$where
what about $what$where
why not play $what$where
why don't you play $what$where
why don't we [listen to|play|put on|have] $what$where
shall we [listen to|play|put on|have] $what$where
can you find $what and play it$where
do you have $what? [play it|put it on|i want to hear it]
do you know $what? [play it|put it on|i'd like to hear it]
have you got $what? [play it|put it on]
is there any chance of $what$where
any chance of [hearing|] $what$where
how do you feel about playing $what$where
how about [playing|putting on|starting|listening to|a round of] $what$where
could you be so kind as to play $what$where
would it be possible to [hear|play|listen to|have] $what$where
is it possible to [play|hear] $what$where
might i [hear|have] $what$where
can $theroom speaker play $what
can you get $what [going|playing]$where
who wants $what? i do, play it
wouldn't $what be nice [now|right now|]
mind if we [listen to|hear|put on|play] $what$where
can you make $theroom speakers play $what
are you able to play $what$where
will you play $what$where
won't you play $what$where""".split("\n")
MUSIC_COMMANDS = """play [some|] music$where
play [something|anything|whatever you like|something for us|something for me|music for me|music for us]$where
play [a song|a tune|some songs|some tunes]$where
play [me|us] [something|a song|some music|a tune|music|some tunes]$where
put [some|] music on$where
put on [some|] [music|tunes]$where
put [something|a song|some tunes] on$where
start [some|the|playing|playing some|] music$where
turn on [some|the|] music$where
turn [the|some|] music on$where
switch [the|] music on$where
[give|get] me [some|] [music|tunes]$where
let's [hear|have|listen to] [some|] music$where
let's have [some|a few] tunes$where
let there be music$where
get [some|the] music going$where
get the party started with some music
fill $theroom with [some|] music
stick some music on$where
throw on some tunes$where
find some music to play$where
make some music$where
send [some|] music to $theroom
have some music playing$where
break the silence with some music$where
entertain [me|us] with [some|] music$where""".split("\n")
MUSIC_STATEMENTS = """[some|] music$where
music [on|now]$where
music on$where
$room_ music
$room_ music on
music, $room_
$where_first [play|put on|start] [some|] music
i[ want|'d like| would like| need] [to hear|to listen to|] [some|] music$where
i feel like [listening to|] [some|] music$where
i'd love [some|to hear some|to hear] music$where
i'm in the mood for [some|] music
i could use some music [right now|now|]
we [need|want] [some|] music$where
we'd like [some|to have some] music$where
time for [some|] music$where
it would be nice to have [some|] music$where
[i'm bored|i'm cooking|we're eating|i'm cleaning up|i'm home|guests are here], [play|put on] [something|some music]$where
there should be music$where
i'd like you to play [something|some music]$where
i want [something|music] playing$where
it's party time, [start the music|play some music|music on]
$theroom needs [some|] music
i want [to dance, play something|to dance, put some music on]$where
a little music$where
how i'd like some music now""".split("\n")
MUSIC_QUESTIONS = """can [i|we] [have|get|listen to|hear] [some|] music$where
could [i|we] [have|get|hear] [some|] music$where
how about [some|a little|a bit of|] music$where
would you mind [playing|putting on] [some|] music$where
shall we [have|listen to] some music$where
why not play [something|some music]$where
what about [some|] music$where
why is there no music$where? play something
may we have some music$where
any chance of [some|a little] music$where""".split("\n")
# wordings for a style alone: $genre stands without "some" or "music"
STYLE_STATEMENTS = """it's a $genre kind of [day|evening|night|morning], [put some on|play some|so play some]
$genre music$where
$genre music [on|now]$where
$genre [in|for] $theroom
$room_ $genre music
$genre time$where
music on, $genre$where
i want music$where, $genre
i'm more in the mood for $genre music
let the music be $genre$where
music$where, [preferably|ideally|something like|maybe] $genre
some music$where, $genre if possible""".split("\n")

ERRORS = """the speaker is offline|no speaker found|speaker not reachable|no connection|not available|service unavailable|login required|timeout
|nothing playing|device busy""".replace("\n", "").split("|")


def outcome(rng, reply, errors=ERRORS):
    """(result, sentence): nearly always it worked."""
    if not chance(rng, 0.025):
        return {"ok": True}, reply
    error = one_of(rng, errors)
    return {"error": error}, expand(rng, "[Sorry, that didn't work: $e.|That failed: $e.|I couldn't do that, $e.|Sorry, $e.|It didn't work:"
        " $e.]", e=error)


def one_form(rng, commands, statements, questions, weights=(0.6, 0.27)):
    """(pattern, form)"""
    p = rng.random()
    if p < weights[0]:
        pattern = one_of(rng, commands)
        return pattern, "statement" if pattern.startswith(("let's", "also", "don't")) else "command"
    if p < weights[0] + weights[1] or not questions:
        return one_of(rng, statements), "statement"
    return one_of(rng, questions), "question"


def said(text):
    """A place in the mouth of the assistant."""
    words = text.replace("{", "").replace("}", "").split(" ")
    return " ".join({"my": "your", "our": "the"}.get(word, word) for word in words)


def place(rng, pattern):
    """(values for the slots, room or None, how the answer says it); with a room if the pattern needs one."""
    if "$theroom" in pattern:
        text, name = room_phrase(rng)
        return {"theroom": text, "where": ""}, name, said(" in " + text)
    if "$room_" in pattern:
        name = room(rng)
        return {"room_": copied(name), "where": ""}, name, " in the " + name
    if "$where_first" in pattern or "$where" in pattern and chance(rng, 0.3):
        if "$where_first" not in pattern and chance(rng, 0.06):
            text = one_of(rng, ["everywhere", "in the whole house", "all over the house", "in every room", "in all rooms", "throughout the house"])
            return {"where": " " + text}, "all", " everywhere"
        text, name = room_place(rng)
        return {"where": " " + text, "where_first": text}, name, " " + said(text)
    return {"where": ""}, None, ""


def played(rng, query, where):
    """What is said when music starts."""
    if query is None:
        return expand(rng, "[Here comes the music$where.|Playing music$where.|Enjoy the music$where.|The music is on$where.|Music is"
            " playing$where.]", where=where)
    return expand(rng, """[Playing $q$where.|Now playing $q$where.|Here is $q$where.|$q, coming up$where.|Here comes $q$where.|Enjoy $q$where.
|Starting $q$where.|OK, $q$where.
|Sure, playing $q$where.]""".replace("\n", ""), q=query, where=where)


def music_request(rng, text, form, query, room_name, where):
    arguments = {}
    if query is not None:
        arguments["query"] = query
    if room_name is not None:
        arguments["room"] = room_name
    reply = played(rng, query, where)
    result, reply = outcome(rng, reply[0].upper() + reply[1:])
    return Request(text, form, [("play_music", arguments)], [result], reply)


def play(rng):
    p = rng.random()
    if p < 0.1:
        pattern, form = one_form(rng, MUSIC_COMMANDS, MUSIC_STATEMENTS, MUSIC_QUESTIONS)
        values, room_name, where = place(rng, pattern)
        return music_request(rng, expand(rng, pattern, **values), form, None, room_name, where)
    if p < 0.14:
        pattern = one_of(rng, STYLE_STATEMENTS)
        values, room_name, where = place(rng, pattern)
        genre = one_of(rng, GENRES)
        return music_request(rng, expand(rng, pattern, genre=copied(genre), **values), "statement", genre, room_name, where)
    pattern, form = one_form(rng, PLAY_COMMANDS, PLAY_STATEMENTS, PLAY_QUESTIONS)
    values, room_name, where = place(rng, pattern)
    kind = one_of(rng, WHAT)
    if pattern.startswith(("$what$where", "$what [on")) and kind in (by_title, by_artist):
        kind = one_of(rng, [by_genre, by_mood_or_phrase, by_playlist, by_station])
    what, query = kind(rng)
    return music_request(rng, expand(rng, pattern, what=what, **values), form, query, room_name, where)


# for each action the commands, the statements and the questions
PAUSE = ("""pause
pause [the music|the song|it|this|that|the track|the playlist|the podcast|playback|what's playing|the audiobook|the radio|everything]
pause [the music|it|this|the song] for [a moment|a minute|a second|a bit|a while|now|me]
pause [there|here|now|right there|for a sec]
hold the [music|song]
hold [the music|the song|it] for a [moment|minute|second]
put [the music|the song|it|the podcast|this] on [hold|pause]
hit pause
press pause
freeze the [music|song|track]
interrupt the [music|song|podcast] for a [moment|minute|second]
give the music a [break|rest]
give [me|us] a [short|little|] break from the music
take a [short|little|] break from the music
suspend [the music|playback]
stop [the music|the song|it|playing] for a [moment|minute|second|bit]
halt the music for a [moment|minute|second|bit]""", """music on hold
music [break|pause]
pause, [someone's at the door|i have a call|the phone is ringing|i need to talk|my phone is ringing|i'll be right back|the baby is crying]
[someone's at the door|the phone is ringing|i've got a call|i have to take this call], [pause the music|pause it|pause this|pause]
[hang on|hold on|one moment|wait], [pause the music|pause it|pause this|pause]
i[ want| need|'d like| would like] to pause [the music|this|it|the song]
i'd like [the music|it|this] paused
we need a [short|quick|] break from the music
just a moment, pause [it|the music|the song]
i need to [talk|take a call|answer the phone], pause [it|the music|the song]
the music needs to [pause|wait] for a [moment|second|minute]""", """can we pause [the music|this|it|the song]
would you mind pausing [the music|this|it|the song] [for a moment|for a second|]
could we [pause|hold] the music for a [moment|second|minute]
can i pause [this|the music|it]
how about a [short|quick|] music break
is it possible to pause [this|the music|the song]""")  # fmt: skip
RESUME = ("""resume
resume [the music|the song|playing|playback|it|the playlist|the podcast|the track|the audiobook|the radio]
continue
continue [the music|the song|playing|playback|the playlist|with the music]
continue [with the song|the podcast|with the podcast|the audiobook|where we stopped|where you left off]
go on
go on [playing|with the music|with the song|with it|with the podcast]
carry on
carry on [playing|with the music|with the song|with the podcast]
keep [playing|going|the music going]
unpause
unpause [the music|the song|it|this|the podcast]
play on
pick up where [we left off|we stopped|you left off]
pick the [music|song|podcast] up where [we|it|you] [stopped|left off]
start [the music|the song|playing|it] again
start [it|the music|the song] up again
restart the music
proceed with the [music|song|playlist]
turn the music [back on|on again|back on again]
put the music back on
switch the music [back on|on again]
bring back the music
bring the music back
let [the music|it|the song] [continue|go on|play on]
let me hear the rest [of it|of the song|of the podcast|]
get the music [going|playing] again
play the rest [of the song|of it|of the podcast]
finish [the song|the track|that song|the podcast]
end the pause
hit play again""", """music back on
music on again
ok, [go on|continue|carry on|i'm back, go on|play on] [with the music|]
i'm back, [go on|continue|resume|play on|you can continue]
[the call is over|i'm done talking], [resume the music|go on|continue|continue the music|music back on]
[i'm off the phone|i hung up|the visitors are gone], [resume the music|go on|continue|continue the music|music back on]
you [can|may] [go on|continue|resume|carry on|keep playing|continue playing|play on] [now|]
you [can|may] [unpause|resume|continue] the music [now|]
i[ want|'d like| would like] to [continue|resume] [the music|listening|the song|the podcast]
i[ want|'d like] the music back [on|]
i want to hear the rest of [the song|it|that song]
back to the music
where were we? [go on|continue|resume the music]
the break is over, [resume|continue|go on with] the music
as you were, [continue|go on] with the music""", """can we [continue|go on|resume|carry on] with the [music|song]
can we resume the [music|song|podcast]
would you mind [continuing|resuming] the [music|song]
can we have the music back [on|]
could we go on with the [music|song|podcast]
shall we [continue|resume|go on with] the music
can i hear the rest of [it|the song]
why did [it|you] stop? [go on|continue|keep] playing""")  # fmt: skip
NEXT = ("""skip
skip [this|it|that|this one|this song|that song|this track|the song|the track|this tune|that one|one|ahead|forward]
skip [to|ahead to|forward to] the next [song|track|one|tune|episode]
skip this [awful|boring|terrible|silly|stupid|sad] [song|track|thing|one|tune]
play the next [song|track|one|tune|episode|thing]
play the next [song|track|one|tune|episode] [now|]
play the following [song|track]
play the one after this
put on the next [song|track|one]
go to the next [song|track|one|tune|episode]
go [ahead|forward] [one song|one track|a song|a track]
jump to the next [song|track|one|tune|episode]
jump [ahead|forward] [a song|a track|one song|one track]
move on to the next [song|one|track]
move [along|ahead|forward] to the next [song|track|one]
change [to|over to] the next [song|track|one]
switch to the next [song|track|one|tune]
advance to the next [song|track]
give [me|us] the next [song|track|one]
let's hear the next [song|track|one]
let's move on to the next [song|track|one]
let's skip [this|this one|it|this song|that one]
get to the next [song|track|one]
forward to the next [song|track]
continue with the next [song|track|one]
leave this one out
pass on this [one|song|track]
spare [me|us] this [song|one|track], skip it
bring on the next [song|track|one]
start the next [song|track|one]""", """next
next [song|track|one|tune]
next song, this one's [boring|too long|bad|terrible|awful|not for me]
the next [song|track|one|tune]
on to the next [song|track|one]
not this [song|one|track] [again|], [next|skip it|skip|the next one]
not this one again, next
i don't like this [song|one|track|tune], [skip it|next|skip|next one|the next one]
i [hate|can't stand|dislike|am sick of|am tired of] this [song|one|track|tune], [skip it|next|skip|next one|move on]
[boring|ugh|nah|nope|no|yuck|oh no|meh|hm], [next|next song|skip this|skip it|skip|next one|next track]
this [song|one|track] is [boring|awful|terrible|too slow|too sad|annoying|not my thing|not for me], [next|skip it|skip|next one|the next]
this one's [boring|awful|terrible|too slow|too sad|annoying|no good], [next|skip it|skip|next one]
i've heard this [one|song] [too often|a hundred times|enough], [next|skip it|skip|next one]
i[ want|'d like| would like] [to hear|] the next [song|track|one]
i[ want|'d like| would like] to skip [this|this song|this one|it]
i'd rather hear the next [song|track|one]
we want [to hear|] the next [song|track|one]
enough of this [song|one|track], [next|skip it|on to the next one]
time for the next [song|track|one]
you can skip this [song|one|track]""", """can [we|i] [skip|pass on] this [song|one|track]
can [we|i] [hear|have|get|go to|move on to] the next [song|track|one]
would you mind skipping [this|this one|this song|it|to the next song]
what's the next [song|one|track]? play it
how about the next [song|track|one]
could we [skip this|skip this one|go to the next song|have the next song]
shall we skip this [song|one|track]""")  # fmt: skip
PREVIOUS = ("""play the previous [song|track|one|tune|episode] [again|]
play the last [song|track|one|tune] again
play the [song|track|one|tune] before [this|this one|that] [again|]
play [that last|the last] [song|track|one] [again|once more|one more time]
play the one we just [had|heard]
go back
go back [one|a song|a track|one song|one track]
go back to the [previous|last] [song|track|one]
go back to the [one|song|track] before
go to the previous [song|track|one|tune|episode]
go one [song|track] back
jump back [a song|a track|one song|one track]
jump back to the [previous|last] [song|track|one]
skip back
skip back [one|a song|a track|one song|one track|to the previous song|to the previous track]
return to the [previous|last] [song|track|one]
switch back to the [previous|last] [song|track|one]
move back [one song|one track|a song|a track|to the previous song]
step back [one song|one track|a song|a track]
bring back the [previous|last] [song|track|one]
bring the [previous|last] [song|track|one] back
put the [previous|last] [song|track|one] back on
put on the [previous|last] [song|track|one] again
repeat the [previous|last] [song|track|one]
let me hear the [previous|last] [song|track|one] again
let's hear the [previous|last] [song|track|one] again
let's go back [one|a song|one song|a track|to the previous song|to the last one]
give [me|us] the [previous|last] [song|track|one] again
take me back to the [previous|last] [song|track|one]
change back to the [previous|last] [song|track|one]""", """previous
previous [song|track|one|tune|episode]
the last [song|track|one|tune] again
the previous [song|track|one|tune] [again|]
[one|one song|one track] back
back [one|one song|a song|one track|to the previous song|to the last song|to the song before]
the [one|song] before this one [again|]
[oops|wait|no|hey|hold on|oh], [go back|go back one|back one song|previous song|back to the previous song|the last one again|go back a track]
i[ want|'d like| would like] [to hear|] the [previous|last] [song|track|one] again
i[ want|'d like| would like] to go back [one song|a song|a track|to the previous song|to the last song]
i liked the [previous|last] [song|track|one], [go back|play it again|go back to it]
i liked the [previous|last] [song|track|one] better, [go back|go back to it]
i missed the [last|previous] [song|track|one], [go back|play it again]
that last [song|one|track] was [great|good|lovely|nice|wonderful], play it again
once more the [last|previous] [song|track|one]
we want the [last|previous] [song|track|one] again""", """can [we|i] [hear|have|get] the [previous|last] [song|track|one] again
can we go back [one|a song|one song|a track|to the previous song|to the last song]
would you mind [playing|repeating] the [previous|last] [song|track|one] again
would you mind going back [one song|a track|to the previous song]
what was that last [song|one]? play it again
could we go back [a song|one song|to the previous track]
could i hear the [previous|last] [song|one] again
how about the [previous|last] [song|one] again""")  # fmt: skip
STOP = ("""stop
stop [the music|playing|the song|it|this|that|the podcast|the playlist|playback|this song|this noise|this music|the audiobook|the album|playing music]
stop [the music|playing|it|this|the song] [now|right now|immediately|at once|altogether|completely]
turn off [the|this|that|] music
turn [the|this|that] music off
turn [this|that] [song|noise] off
switch off [the|this|] music
switch the music off
shut off the music
shut the music [off|down]
shut down the music
kill the [music|song|tunes]
cut the [music|song|tunes]
cut off the music
end [the music|the song|the playlist|playback|the podcast]
quit [playing|the music|playing music]
cease [playing|the music]
make [the music|it|that song] stop
make this music stop
let the music stop
put an end to [the music|this song|this noise|this music]
get rid of [this|that|the] music
take the music off
bring the music to [a stop|an end]
abort the [music|song]""", """music off
[the|] music off [now|everywhere|]
no more music [now|today|tonight|]
enough [music|of this music|of the music] [for today|for now|for tonight|]
that's enough music [for today|for now|for tonight|]
[ok|okay|alright|right], [stop the music|music off|no more music|turn the music off]
i[ want| need|'d like| would like] the music [off|to stop]
i want [no more music|you to stop playing|you to stop the music]
i don't want [any more music|to listen to music anymore|to hear music anymore|music anymore]
i've [had|heard] enough music [for today|for now|for tonight|]
we've [had|heard] enough music [for today|for now|]
the music [can|should|must|has to] [stop|go off] [now|]
you can [stop|turn off|switch off|end] the music [now|]
you can stop playing [now|music now|]
i'm [going to bed|leaving|off to bed], [stop the music|turn the music off|music off|turn off the music]
i'm [going out|done listening|trying to sleep|trying to think], [stop the music|turn the music off|music off|turn off the music]
we're [leaving|going to bed|going out|done dancing], [stop the music|turn the music off|music off|turn off the music]
i can't [concentrate|think|sleep|work] with [this|the] music on, [turn it off|stop it]
the party is over, [stop the music|music off|turn off the music]
that's it, [stop the music|music off]
time to [stop|turn off] the music""", """would you mind [stopping|turning off|switching off] the music
would you mind turning the music off
can we [stop|turn off|switch off|end] the music [now|]
could we have the music off
do we [need|have to have] the music [on|]? turn it off
is the music still on? turn it off
why is the music still [on|playing]? [turn it off|stop it]
shall we [stop|turn off] the music""")  # fmt: skip


def lines(texts):
    return [text.split("\n") for text in texts]


CONTROL = {"pause": lines(PAUSE), "resume": lines(RESUME), "next": lines(NEXT), "previous": lines(PREVIOUS), "stop": lines(STOP)}
CONTROL_REPLIES = {
    "pause": "[Paused.|The music is paused.|OK, paused.|Pausing.|On hold.|I paused it.|Say when to go on.|It's paused now.]",
    "resume": "[Going on.|The music plays again.|Resuming.|OK, back to the music.|Continuing.|Here we go again.|And on it goes.|Playing again.]",
    "next": "[Skipped.|Here is the next one.|Next one coming up.|On to the next song.|Next song.|OK, the next one.|Skipping.|Here's the next track.]",
    "previous": "[Going back.|Here is the previous one.|Back to the previous song.|One back.|OK, the previous track.|The last one again.|Here it"
        " is again.]",
    "stop": "[Stopped.|The music is off.|OK, music off.|I stopped the music.|Music stopped.|Silence now.|Done, the music has stopped.|It's off.]",
}


def control_call(rng, text, form, action):
    result, reply = outcome(rng, expand(rng, CONTROL_REPLIES[action]))
    return Request(text, form, [("control_music", {"action": action})], [result], reply)


def control(rng):
    action = one_of(rng, ["pause", "resume", "next", "next", "previous", "stop"])
    pattern, form = one_form(rng, *CONTROL[action])
    return control_call(rng, expand(rng, pattern), form, action)


LEVEL_COMMANDS = """set the volume to $n
set [the|] volume [to|at] $n
set [it|the music|the sound|the speaker|the speakers] to volume $n
set the [sound|music|music volume|loudness|sound level|speaker volume|volume level] to $n
turn the volume [to|up to|down to] $n
turn [it|the music|the sound] [up|down] to $n
turn [up|down] the [volume|music|sound] to $n
put the volume [at|to|on] $n
put [it|the music] [at|on] volume $n
change the volume to $n
make [the|it] volume $n
adjust the volume to $n
bring the volume [to|up to|down to] $n
bring [it|the music|the sound] [up|down] to $n
raise [the volume|the music|the sound] to $n
increase the volume to $n
lower [the volume|the music|it|the sound] to $n
reduce the volume to $n
decrease the volume to $n
drop the volume [down|] to $n
crank [the volume|the music|it] [up|] to $n
pump [the volume|the music|it] [up|] to $n
take the volume [down|up|] to $n
move the volume to $n
get the volume [down|up|] to $n
have the volume at $n
keep the volume at $n
let the volume be $n
play [it|this|the music] at $n volume
play [it|this|the music] at volume $n
fix the volume at $n
go to volume $n
go [up|down] to volume $n
dial [the volume|the music] [up|down|back] to $n""".split("\n")
LEVEL_STATEMENTS = """volume $n
volume $n
volume [to|at|on|up to|down to|level] $n
volume: $n
volume [level|] $n [now|]
the volume [should|must|can] be $n
sound [at|to] $n
[sound|music] volume $n
[the|] music [at|to] volume $n
the music at $n
i want the volume [at|to be|on] $n
i'd like the volume [at|to be|on] $n
i would like the volume [at|set to] $n
i [need|want] [it|the music|the sound] at volume $n
i'd like [the music|the sound] at $n
$n volume
$n is [loud enough|enough volume|the volume i want|a good volume]
let's [say|try|have] volume $n
let's [go with|go for] a volume of $n
a volume of $n [would be nice|would be good|is fine|is enough|will do]
volume up to $n
volume down to $n
[it's too loud|too loud|that's deafening|not so loud], [turn it down to|volume|set the volume to|go down to] $n
[it's too quiet|too quiet|i can't hear a thing|this is too soft], [turn it up to|volume|set the volume to|go up to] $n
the baby's asleep, volume [to|down to] $n
[party time|i love this song|this is my song], volume [to|up to] $n""".split("\n")
LEVEL_QUESTIONS = """can we have the volume at $n
can [i|we] get the volume [to|down to|up to] $n
could we have [it|the music] at volume $n
would you mind [setting|turning|putting] the volume to $n
how about volume $n
what about a volume of $n
would you [set|turn|put] the volume to $n
why not try volume $n
could the volume be $n
may i have the volume at $n
can the volume go to $n
shall we say volume $n
do you mind turning the volume to $n""".split("\n")
MUTE = ("""mute
mute [it|the music|the sound|the speaker|the speakers|everything|this|that|the volume|the song|the audio]
mute [it|the music|the sound|everything] [now|right now|for a moment|for a second|for a minute|quickly]
put [it|the music|the sound|the speaker|the speakers] on mute
hit mute
press mute
turn the sound off
turn off the sound
switch off the sound
switch the sound off
cut the sound
kill the [sound|volume]
set [the volume|it|the music] to mute
turn the volume down to {zero}
drop the volume to {zero}
bring the volume down to {zero}
silence the [speaker|speakers|sound]""", """mute, [quick|now]
sound off
the sound off
volume off
no sound [now|]
[quick|hush|ssh|psst], mute [it|the music|everything]
i want [the music|it|the sound] [muted|on mute]
i'd like to mute [the music|it|this]
i want to mute [the music|it|this]
[someone's calling|the phone is ringing|the baby is asleep|i'm in a meeting|i have a call], mute [it|the music|the speakers]
volume to {zero}
[the|] music on mute
everything on mute""", """can we mute [this|the music|it|the sound]
would you mind muting [it|the music|the sound]
could we have the sound off
can we have it on mute""")  # fmt: skip
FULL = ("""turn [it|the volume|the music|the sound] [up|] to [the maximum|the max|maximum]
turn [it|the volume|the music|the sound] all the way up
turn [it|the music] up as [loud|high] as [it goes|possible|you can|it gets]
turn [it|the music] up to full [volume|blast]
set the volume to [full|max|maximum|the maximum|the max]
set the volume as [high|loud] as [possible|it goes]
put the volume [on|at|to] [full|max|maximum]
crank [it|the music|the volume] all the way up
crank [it|the music|the volume] [up|] to the max
make it as loud as [possible|you can|it gets|it goes]
go [to|] full [volume|blast]
go to maximum volume
play [it|this|the music] at [full|maximum|max] volume
play [it|this|the music] as loud as [possible|you can]
play [it|this] [at|on] full blast
give [me|us|it] full volume
give [me|us] maximum volume
pump the volume to the max
max out the volume
bring the volume to the maximum
raise the volume to the maximum
let it play at full volume
blast it at full volume""", """full volume
maximum volume
max volume
volume [to|at|on|] [max|maximum|full]
volume all the way up
[full|maximum|max] volume [now|everybody|on this one|for this song]
full blast
as loud as [possible|you can|it gets|it goes]
i want [it|the music|this|this song] [at full volume|as loud as possible|at maximum volume|at full blast]
i'd like [it|the music|this] [at full volume|as loud as possible|at maximum volume]
[i love this song|this is my song|party time|nobody's home], [full volume|max volume|volume to the max]""", """can we have [full|maximum] volume
how about full volume
would you mind turning it all the way up
could we have this at full volume""")  # fmt: skip
HALF = ("""set the volume to {half}
turn the volume [to|down to|up to] {half}
turn [it|the music] [down|up] to {half} volume
put the volume at {half}
bring the volume to {half}
make it {half} volume
play [it|this|the music] at {half} volume
change the volume to {half}
go to {half} volume
drop the volume to {half}
raise the volume to {half}
lower the volume to {half}
give me {half} volume""", """{half} volume
volume [at|to|on|] {half}
{half} volume [is enough|will do|is fine|would be nice]
i want [it|the music|this] at {half} volume
i'd like [it|the music|this] at {half} volume
let's have {half} volume""", """can we have it at {half} volume
how about {half} volume
would you mind setting the volume to {half}
could the music be at {half} volume""")  # fmt: skip
UP = ("""turn it {up}
turn it {up} [a bit|a little|a little bit|a notch|some|some more|slightly|a lot|a tad|a touch|one notch]
turn [the music|the volume|the sound|this|this song|that|the song|the speaker|the speakers] {up}
turn [the music|the volume|the sound|this|this song] {up} [a bit|a little|a little bit|a notch|some|slightly|a tad|a lot]
turn {up} the [music|volume|sound|song|speakers|tunes]
make it [louder|a bit louder|a little louder|much louder|slightly louder|a lot louder|a touch louder|somewhat louder]
make [the music|the sound|the song|this] [louder|a bit louder|a little louder|much louder]
raise the [volume|sound|music] [a bit|a little|a notch|slightly|]
increase the [volume|sound|loudness] [a bit|a little|slightly|]
bring {up} the [volume|sound|music]
bring the [volume|sound|music] {up} [a bit|a little|a notch|]
crank {up} the [volume|music|tunes|sound|song]
crank [it|the music|the volume|this] {up} [a bit|a notch|]
pump {up} the [volume|music|sound]
pump it {up}
boost the [volume|sound|music] [a bit|a little|]
put the [volume|music|sound] {up} [a bit|a little|a notch]
take the volume {up} a [bit|notch|little]
push the volume {up} [a bit|a little|]
play [it|this|the music|that] [louder|a bit louder|a little louder|much louder]
go [a bit|a little|] louder
give [me|it|us] [more|some more|a bit more|a little more] volume
add [more|some|a bit of] volume
move the volume {up} [a bit|a notch|]
step {up} the volume
let it be [a bit|a little|] louder
let me hear it [a bit|] louder
amplify the music
nudge the volume {up}
ramp {up} the volume""", """louder
[a bit|a little|much|a little bit|a lot|slightly|even|still] louder
[louder|a bit louder] [now|everybody|for this song]
[the|] volume {up} [a bit|a little|a notch|]
[sound|music] {up} [a bit|a little|]
[more|a bit more|a little more|some more] volume
i can't hear [it|the music|anything|a thing|this|the song|the podcast|the words|what they say|the lyrics], [louder|turn it {up}]
i can't hear the [music|song|podcast|lyrics]
i can [hardly|barely] hear [it|the music|this|the song|the podcast|the lyrics]
it's [too quiet|a bit quiet|too soft|so quiet|very quiet|not loud enough|too low|a bit low|a little quiet], [i can't hear it|turn it {up}|louder]
the [music|sound|volume|song|podcast] is [too quiet|too low|too soft|not loud enough]
the [music|sound|volume|song|podcast] is [a bit quiet|a bit low|very quiet|a little too quiet|hardly audible]
this is [too quiet|not loud enough|too soft to hear]
[i love this song|this is my song|i love this one], [turn it {up}|louder|crank it {up}|make it louder|pump it {up}|volume {up}]
[great song|my favorite song|this is my jam], [turn it {up}|louder|crank it {up}|make it louder|pump it {up}|volume {up}]
i [want|need] [it|the music|this] [louder|a bit louder|a little louder|much louder]
i'd like [it|the music|this] [louder|a bit louder|a little louder|much louder]
i'd like the [music|sound|volume] [a bit|a little|] [louder|higher]
i [want|need] [more|a bit more] volume
we need [it|the music] [louder|a bit louder]
we can't hear the [music|song] [back here|over here|]
the volume [could|should|can] be [a bit|a little|] higher
the music [could|should|can] be [louder|a bit louder|a little louder]
i'm [a bit|] hard of hearing, [louder|turn it {up}|make it louder]
grandpa can't hear the [music|song|podcast]
it's noisy [here|in here], turn [it|the music] {up}
the [vacuum|dishwasher|mixer|kettle|rain] is [so|too] loud, turn [it|the music] {up}
[way|a bit|much|] too quiet
not loud enough""", """can we have it [louder|a bit louder|a little louder]
could we have the music [louder|a bit louder|a little louder]
would you mind turning it {up} [a bit|a little|]
would you mind turning {up} the [music|volume|sound]
could it be [a bit|a little|] louder
can it [go|get|be] [any|a bit] louder
how about [a bit|a little|] more volume
is that as loud as it gets? turn it {up}
why is it so quiet? turn it {up}
why is the music so [quiet|low|soft]
who turned it down? [louder|turn it back {up}]""")  # fmt: skip
DOWN = ("""turn it {down}
turn it {down} [a bit|a little|a little bit|a notch|some|slightly|a lot|a tad|a touch|one notch]
turn [the music|the volume|the sound|this|this song|that|the song|the speaker|the speakers|that noise] {down}
turn [the music|the volume|the sound|this|this song|that] {down} [a bit|a little|a little bit|a notch|some|slightly|a tad|a lot]
turn {down} [the music|the volume|the sound|the song|the speakers|the noise|that noise]
make it [quieter|softer|less loud|a bit quieter|a little quieter|much quieter|slightly quieter|a bit softer|a little softer|not so loud]
make [the music|the sound|the song|this] [quieter|softer|less loud|a bit quieter|a little quieter|a bit softer]
lower the [volume|sound|music] [a bit|a little|a notch|slightly|]
decrease the [volume|sound|loudness] [a bit|a little|slightly|]
reduce the [volume|sound|loudness] [a bit|a little|slightly|]
bring {down} the [volume|sound|music]
bring the [volume|sound|music] {down} [a bit|a little|a notch|]
soften the [music|sound]
tone it {down} [a bit|a little|]
tone {down} the [music|volume|sound]
dial {down} the [music|volume|sound]
put the [volume|music|sound] {down} [a bit|a little|a notch]
take the volume {down} a [bit|notch|little]
play [it|this|the music|that] [quieter|softer|more quietly|more softly|a bit quieter|a bit softer|less loudly]
go [a bit|a little|] quieter
drop the volume [a bit|a little|a notch|]
give [me|it|us] [less|a bit less|a little less] volume
move the volume {down} [a bit|a notch|]
let it be [quieter|a bit quieter|softer]
quieten the music [down|]
quiet the music [down|] a bit
nudge the volume {down}
cut the volume a [bit|little]
keep the music {down}
ease the volume {down} [a bit|]""", """quieter
softer
[a bit|a little|much|a lot|slightly|even|still] [quieter|softer]
less loud
[quieter|a bit quieter|softer] now
[the|] volume {down} [a bit|a little|a notch|]
[sound|music] {down} [a bit|a little|]
[less|a bit less|a little less] volume
[not so|not that] loud
[way|a bit|much|] too loud
it's [too loud|a bit loud|way too loud|so loud], [turn it {down}|quieter|lower the volume]
it's [very loud|a little loud|deafening|much too loud|a bit too loud], [turn it {down}|quieter|lower the volume]
the [music|sound|volume|song|podcast] is [too loud|too high|a bit loud|way too loud]
the [music|sound|volume|song|podcast] is [very loud|a little too loud|deafening|hurting my ears|giving me a headache]
[this|that] is [too loud|way too loud|a bit loud|much too loud]
that's [too loud|way too loud|a bit loud|much too loud]
my ears [hurt|are ringing], [turn it {down}|it's too loud|quieter|lower the volume]
[the baby is sleeping|the kids are asleep|it's late], turn it {down}
[the neighbors are complaining|i have a headache|i'm on the phone|we're trying to talk], turn it {down}
[the baby is sleeping|it's late], [quieter|lower the volume|turn the music {down}|volume {down}|not so loud]
[the neighbours are complaining|i have a headache|i'm on the phone], [quieter|lower the volume|turn the music {down}|volume {down}|not so loud]
i can't hear myself [think|talk], [turn it {down}|turn the music {down}|not so loud]
we can't hear [each other|ourselves think], turn [it|the music] {down}
i [want|need] [it|the music|this] [quieter|a bit quieter|a little quieter|softer|a bit softer|less loud]
i'd like [it|the music|this] [quieter|a bit quieter|a little quieter|softer|a bit softer|less loud]
i'd like the [music|sound|volume] [a bit|a little|] lower
i [want|need] [less|a bit less] volume
the volume [could|should|can] be [a bit|a little|] lower
the music [could|should|can] be [quieter|a bit quieter|softer]
there's no need for the music to be so loud
i'm [trying to read|trying to work|trying to talk|on a call], turn [it|the music] {down} [a bit|a little|]
my neighbors will kill me, turn it {down}
[phew|ouch|wow|whoa|oh my], [that's loud, quieter|too loud|turn it {down}|not so loud|quieter]""",
    """can we have it [quieter|a bit quieter|a little quieter|softer]
could we have the music [quieter|a bit quieter|softer|a little lower]
would you mind turning it {down} [a bit|a little|]
would you mind turning {down} the [music|volume|sound]
could it be [quieter|a bit quieter|a little softer]
can it be a bit quieter
does [it|the music] have to be so loud
must the music be so loud
why is [it|the music] so loud
how about [a bit|a little|] less volume
do you want to wake the neighbors? turn it {down}
who turned it up? [quieter|turn it back {down}]""")  # fmt: skip
MUTE, FULL, HALF, UP, DOWN = lines(MUTE), lines(FULL), lines(HALF), lines(UP), lines(DOWN)
STEPS = {
    "up": "[Louder.|A bit louder now.|OK, louder.|I turned it up.|Volume up.|Turned up.|There, louder.]",
    "down": "[Quieter.|A bit quieter now.|OK, quieter.|I turned it down.|Volume down.|Turned down.|There, softer.]",
}
LEVEL_REPLY = "[Volume $n.|The volume is at $n.|Volume set to $n.|OK, volume $n.|It's at $n now.|Done, the volume is $n.|$n percent it is.]"
LEVELS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 12, 15, 20, 20, 25, 30, 30, 35, 40, 40, 45, 50, 50, 55, 60, 60, 65, 70, 70, 75, 80, 80, 85, 90,
    95, 100]


def volume_call(rng, text, form, arguments):
    if "change" in arguments:
        reply = expand(rng, STEPS[arguments["change"]])
    elif arguments["level"] == 0:
        reply = expand(rng, "[Muted.|The sound is off.|OK, muted.|It's mute now.|Silence.]")
    elif arguments["level"] == 100:
        reply = expand(rng, "[Full volume.|As loud as it gets.|Volume at 100.|OK, full volume.|Volume 100 percent.]")
    else:
        reply = expand(rng, LEVEL_REPLY, n=str(arguments["level"]))
    result, reply = outcome(rng, reply)
    return Request(text, form, [("set_volume", arguments)], [result], reply)


def level(rng):
    return one_of(rng, LEVELS) if chance(rng, 0.4) else int(rng.random() * 101)


def amount(rng, n):
    if chance(rng, 0.08):
        return copied(f"{n}%")
    return copied(number(rng, n)) + one_of(rng, ["", "", "", " percent", " percent", " per cent"])


def volume(rng):
    p = rng.random()
    if p < 0.42:
        n = level(rng)
        pattern, form = one_form(rng, LEVEL_COMMANDS, LEVEL_STATEMENTS, LEVEL_QUESTIONS)
        return volume_call(rng, expand(rng, pattern, n=amount(rng, n)), form, {"level": n})
    for limit, patterns, arguments in ((0.49, MUTE, {"level": 0}), (0.55, FULL, {"level": 100}), (0.59, HALF, {"level": 50}),
                                       (0.79, UP, {"change": "up"}), (1, DOWN, {"change": "down"})):  # fmt: skip
        if p < limit:
            pattern, form = one_form(rng, *patterns)
            return volume_call(rng, expand(rng, pattern), form, dict(arguments))


AGAIN_THERE = """[and|and in|in|] $theroom too
[and|] $place too
[and|] $place as well
also $place
and also $place
now $place too
now $place as well
[now|and|] the same $place
the same $place too
[and|] the same for $theroom
and $theroom
and $theroom too
$theroom as well
play it $place too
play it $place as well
play that $place too
put it on $place too
put it on $place as well
i want it $place too
i'd like it $place as well
same thing $place
do the same $place
do the same for $theroom
can i hear it $place as well
can we have that $place too
and now $theroom too
how about $place too
let it play $place too""".split("\n")
OTHER_WHAT = """no, $what instead
no, rather $what
actually, $what
actually, $what instead
make it $what
make it $what instead
make that $what instead
$what instead
rather $what
now $what
and now $what
i'd rather [hear|have|listen to] $what
i'd prefer $what
play $what instead
put on $what instead
change it to $what
change that to $what
switch to $what
switch it to $what
sorry, i meant $what
i meant $what
or rather $what
not that, $what
hm, how about $what instead
what about $what instead
maybe $what instead
let's try $what instead
let's have $what instead
on second thought, $what
then $what instead
can we have $what instead
could it be $what instead
wait, $what instead
no no, $what""".split("\n")


def form_of(text):
    """The form of a follow-up by its first word; only plain imperatives count as commands."""
    first = text.split()[0]
    if first in ("can", "could", "what", "how", "shall", "would", "why"):
        return "question"
    commands = ("play", "put", "do", "make", "change", "switch", "turn", "skip", "pause", "stop", "hold", "set", "go", "resume", "unpause",
        "continue", "keep",
                "carry", "start", "try", "let")  # fmt: skip
    return "command" if first.strip(",") in commands and "," not in first else "statement"


def table(*rows):
    return [(texts.replace("\n", "").split("|"), tool, argument) for texts, tool, argument in rows]


AFTER_PLAY = table(
    ("louder|a bit louder|turn it {up}|turn it {up} a bit|and louder|but louder|and a bit louder|too quiet|make it louder|turn that {up}|volume"
        " {up}", "change", "up"),
    ("quieter|a bit quieter|turn it {down}|turn it {down} a bit|but quieter|not so loud|too loud|a bit softer|make it quieter|turn that {down}",
        "change", "down"),
    ("next|next one|skip it|skip this|not this one, next|no, skip it|the next one|next song|not that one, skip it", "action", "next"),
    ("pause it|pause|pause that|hold it for a moment|pause it for a second|put it on pause", "action", "pause"),
    ("stop it|stop|stop that|stop it again|turn it off again|and off again|off again|ok, stop it|no, stop|enough, stop it|stop that again|switch"
        " it off again", "action", "stop"),
)
AFTER_CONTROL = {
    "pause": table(("""ok, go on|go on now|continue|you can go on now|and on again|ok, i'm back, go on|resume|now go on|ok, continue|play on
|ok, unpause|and go on again|go on again
|that's it, go on|ready, go on|now continue|all done, continue|unpause it|keep going|carry on|let it play again|start it again|back on again""",
    "action", "resume")),
    "resume": table(("pause again|and pause again|pause it again|wait, pause it again|no, pause again|sorry, pause again|hold it again|pause once"
        " more|oh, pause it again", "action", "pause"),
                    ("stop it|ok, stop it now|no, stop it altogether|and stop|no, stop it", "action", "stop"), ("skip it|next one|and now the next"
                        " one|next", "action", "next")),
    "next": table(("""and again|one more|again|once more|next|the next one too|another one|skip that too|not this one either|skip this one too
|and the next|skip that one as well
|and another|no, next|one further|one more skip|next again|skip again|and skip again|this one too|that one too|keep skipping""", "action", "next"),
                  ("no, go back|oh, go back|back again|no, back|go back|the last one again|oops, back one|that was too far, go back|wait, the one"
                      " before", "action", "previous")),
    "previous": table(("one more back|and one more back|once more back|one further back|another one back|go back one more|and the one before that"
        "|the one before that|and again|one more",
                       "action", "previous"),
                      ("no, next|no, skip it|and forward again|forward again|next one|no, the next one|go forward again", "action", "next")),
    "stop": table(("""no, go on|sorry, go on|wait, continue|go on again|oh no, go on|start it again|and on again|on again|back on again
|no, continue|continue after all
|turn it back on|turn it on again|resume it|no, keep playing|no no, play on|sorry, resume it""", "action", "resume")),
}  # fmt: skip
AFTER_STEP = {
    "up": table(("""a bit more|more|some more|even louder|still louder|still too quiet|louder still|a little more|again|once more|and again
|one more notch|not enough, louder
|that's not enough|keep going|and a bit more|a touch more|one more time|still not loud enough|further up|go on, louder|higher|even higher
|a notch more|i still can't hear it""", "change", "up"),
                ("too much|that's too much|now it's too loud|a bit less|not that loud|not that much|no, too loud|back {down} a bit|now a bit"
                    " quieter|that's too loud now|{down} again",
                 "change", "down")),
    "down": table(("""a bit more|more|some more|even quieter|still too loud|still quieter|quieter still|a little more|again|once more|and again
|one more notch|not enough, quieter
|that's not enough|keep going|and a bit more|a touch more|one more time|still not quiet enough|further down|lower|even lower|a notch more
|it's still too loud""", "change", "down"),
                  ("too much|that's too much|now it's too quiet|not that quiet|not that much|no, too quiet|back {up} a bit|now a bit louder|that's"
                      " too quiet now|{up} again", "change", "up")),
}  # fmt: skip
AFTER_LEVEL = table(("a bit louder|louder|still too quiet|a bit more|even louder|a little more|{up} a bit|and a bit louder|that's too quiet",
    "change", "up"),
                    ("a bit quieter|quieter|still too loud|a bit less|even quieter|a little less|{down} a bit|and a bit softer|that's too loud",
                        "change", "down"))  # fmt: skip
OTHER_LEVEL = """make it $n
make it $n instead
make that $n
no, $n
no, $n instead
$n
to $n
and to $n now
rather $n
actually $n
actually, make it $n
better $n
sorry, i meant $n
i meant $n
$n then
then $n
let's say $n
let's try $n
try $n
go to $n
hm, $n
how about $n
what about $n
set it to $n
no, set it to $n
now $n
now to $n
change it to $n
$n instead
maybe $n
put it at $n""".split("\n")


def simple_follow(rng, choices):
    texts, argument, value = one_of(rng, choices)
    text = one_of(rng, texts)
    if argument == "change":
        return volume_call(rng, text, form_of(text), {"change": value})
    return control_call(rng, text, form_of(text), value)


def after_play(rng, arguments):
    p = rng.random()
    query, room_name = arguments.get("query"), arguments.get("room")
    if p < 0.4 and room_name != "all":
        pattern = one_of(rng, AGAIN_THERE)
        text, name = room_phrase(rng) if "$theroom" in pattern else room_place(rng)
        if name == room_name:
            return None
        where = said(" in " + text if "$theroom" in pattern else " " + text)
        text = expand(rng, pattern, theroom=text, place=text)
        return music_request(rng, text, form_of(text), query, name, where)
    if p < 0.72:
        what, new = one_of(rng, WHAT)(rng)
        text = expand(rng, one_of(rng, OTHER_WHAT), what=what)
        return music_request(rng, text, form_of(text), new, room_name, "")
    return simple_follow(rng, AFTER_PLAY)


def after_control(rng, arguments):
    return simple_follow(rng, AFTER_CONTROL[arguments["action"]])


def after_volume(rng, arguments):
    if "change" in arguments:
        return simple_follow(rng, AFTER_STEP[arguments["change"]])
    if chance(rng, 0.6):
        n = level(rng)
        text = expand(rng, one_of(rng, OTHER_LEVEL), n=amount(rng, n))
        return volume_call(rng, text, form_of(text), {"level": n}) if n != arguments["level"] else None
    return simple_follow(rng, AFTER_LEVEL) if 0 < arguments["level"] < 100 else None


REQUESTS = {"play_music": (12, play), "control_music": (6, control), "set_volume": (7, volume)}
FOLLOWS = {"play_music": after_play, "control_music": after_control, "set_volume": after_volume}
